package wordings

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// CollectComments returns the comments of all Go files in a repository, including tests but not generated files. root
// is the root folder of the repository.
func CollectComments(root string) ([]Text, error) {
	var texts []Text
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != root && slices.Contains(skippedFolders, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		texts = append(texts, goComments(filepath.ToSlash(rel), string(content))...)
		return nil
	})
	return texts, err
}

// goComments returns each comment group of a Go file as one text.
func goComments(rel, content string) []Text {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, rel, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil
	}
	var texts []Text
	for _, group := range file.Comments {
		var lines []string
		for _, c := range group.List {
			lines = append(lines, commentLines(c.Text)...)
		}
		if text := strings.Join(lines, "\n"); countWords(text) > 0 {
			texts = append(texts, Text{Kind: Comments, File: rel, Line: fset.Position(group.Pos()).Line, Text: text})
		}
	}
	return texts
}

// commentLines returns the lines of a comment without comment markers. Preformatted lines (drawings and code) and
// directives become empty, so that the number of lines is unchanged.
func commentLines(comment string) []string {
	if block, ok := strings.CutPrefix(comment, "/*"); ok {
		return strings.Split(strings.TrimSuffix(block, "*/"), "\n")
	}
	line := strings.TrimPrefix(comment, "//")
	if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "go:") || strings.HasPrefix(line, "nolint") {
		return []string{""}
	}
	return []string{line}
}

// Folder returns the folder of the text's file.
func (t Text) Folder() string { return path.Dir(t.File) }

// ByFolder groups texts by the folders of their files.
func ByFolder(texts []Text) map[string][]Text {
	folders := map[string][]Text{}
	for _, t := range texts {
		folders[t.Folder()] = append(folders[t.Folder()], t)
	}
	return folders
}
