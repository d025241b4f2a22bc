package wordings

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// forDevelopers contains folders of Go source whose texts only developers read.
var forDevelopers = []string{
	"cmd/internal/cassiatest", "cmd/internal/promrig", "cmd/internal/tidy", "cmd/internal/s3/s3test", "cmd/tools", "docker", "promql/bucketfn/bucketfntest", "storage/cassandra/cassandratest", "storage/engine/enginetest",
	"storage/engine/faultengine", "storage/pebble/faultfs", "storage/soak", "storage/storagetest",
}

// skippedFolders contains the names of folders that contain no texts of this project.
var skippedFolders = []string{".git", "bin", "data", "node_modules", "testdata", "dist"}

// Collect returns the texts of a repository. root is the root folder of the repository.
func Collect(root string) ([]Text, error) {
	var texts []Text
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			if slices.Contains(skippedFolders, entry.Name()) || slices.Contains(forDevelopers, rel) {
				return filepath.SkipDir
			}
			return nil
		}
		read := readerOf(rel)
		if read == nil || !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		texts = append(texts, read(rel, string(content))...)
		return nil
	})
	return texts, err
}

// readerOf returns the function that extracts the texts of a file, or nil if the file contains no texts.
func readerOf(rel string) func(rel, content string) []Text {
	switch dir, ext := path.Dir(rel), path.Ext(rel); {
	case rel == "CHANGELOG.md":
		return markdownOf(Changelog)
	case rel == "README.md" || rel == "CONTRIBUTING.md" || rel == "SECURITY.md":
		return markdownOf(Readme)
	case dir == "cmd/internal/manual" && ext == ".md":
		return markdownOf(Manual)
	case IsDesignPage(rel):
		return markdownOf(Design)
	case strings.HasPrefix(rel, "examples/") && ext == ".md":
		return markdownOf(Examples)
	case strings.HasPrefix(rel, "examples/") && slices.Contains([]string{".yaml", ".yml", ".service", ".env", ".sh", ".conf", ".tpl"}, ext):
		return hashComments
	case strings.HasPrefix(rel, "cmd/internal/ui/src/") && (ext == ".ts" || ext == ".tsx"):
		return pageTexts
	case ext == ".go" && !strings.HasSuffix(rel, "_test.go"):
		return goTexts
	}
	return nil
}

// IsDesignPage reports whether a file is a design page: any page in storage/design, or design.md of another package.
func IsDesignPage(rel string) bool {
	return path.Ext(rel) == ".md" && path.Dir(rel) == "storage/design" || path.Base(rel) == "design.md"
}
