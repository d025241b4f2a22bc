package tidy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wordings are forms of comments that hide the condition or the effect that they are about.
var wordings = []struct {
	form   *regexp.Regexp
	advice string
	// most is how many there may be outside of storage, see isStorage, and mostInStorage how many there. They may only fall.
	most, mostInStorage int
}{
	{regexp.MustCompile(`\b(says|tells|knows)\b`),
		`code has no voice: write what a function returns or does ("reports whether", "returns ErrX if"), what a field means, or what a file contains`, 0, 53},
	{regexp.MustCompile(`\b[Ww]hat (is|was)\b`),
		`name the thing: "stored samples" rather than that which is stored`, 16, 78},
}

// plainStorage are the folders of storage whose comments are held to most. The others, and storage itself, are held to mostInStorage
// together, so that moving a file into a new folder changes nothing.
var plainStorage = []string{
	"storage/cassandra", "storage/chunk", "storage/engine", "storage/format", "storage/ha", "storage/head", "storage/index", "storage/inspect", "storage/membership",
	"storage/pebble", "storage/rollup", "storage/soak", "storage/storagetest", "storage/tenant",
}

func TestCommentsAreDirect(t *testing.T) {
	files := goFiles(t)
	for _, w := range wordings {
		var found, inStorage []string
		for _, f := range files {
			places := f.comments(w.form)
			if isStorage(f.dir()) {
				inStorage = append(inStorage, places...)
			} else {
				found = append(found, places...)
			}
		}
		require.LessOrEqual(t, len(found), w.most, "%s: %s\n%s", w.form, w.advice, strings.Join(found, "\n"))
		require.LessOrEqual(t, len(inStorage), w.mostInStorage, "%s in storage: %s\n%s", w.form, w.advice, strings.Join(inStorage, "\n"))
		t.Logf("%s: %d, in storage %d", w.form, len(found), len(inStorage))
	}
}

// isStorage reports whether a folder's comments are held to mostInStorage.
func isStorage(dir string) bool {
	if dir != "storage" && !strings.HasPrefix(dir, "storage/") {
		return false
	}
	for _, plain := range plainStorage {
		if dir == plain || strings.HasPrefix(dir, plain+"/") {
			return false
		}
	}
	return true
}

// comments returns the lines of a file's comments that match a form, with their places.
func (f goFile) comments(form *regexp.Regexp) (places []string) {
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if form.MatchString(c.Text) {
				places = append(places, f.fset.Position(c.Pos()).String()+" "+c.Text)
			}
		}
	}
	return places
}

func TestWordings(t *testing.T) {
	for text, wrong := range map[string]bool{
		"// full says whether": true, "// what was": true, "// the store tells": true,
		"// full reports whether there is room": false, "// saystems": false, "// somewhat isolated": false,
	} {
		matches := false
		for _, w := range wordings {
			matches = matches || w.form.MatchString(text)
		}
		require.Equal(t, wrong, matches, text)
	}
}
