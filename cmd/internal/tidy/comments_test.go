package tidy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commentForms are forms of comments that hide the condition or the effect that they are about.
var commentForms = []struct {
	form   *regexp.Regexp
	advice string
	// most is how many there may be. It may only fall.
	most int
}{
	{regexp.MustCompile(`\b(says|tells|knows)\b`),
		`code has no voice: write what a function returns or does ("reports whether", "returns ErrX if"), what a field means, or what a file contains`, 0},
	{regexp.MustCompile(`\b[Ww]hat (is|was)\b`),
		`name the thing: "stored samples" rather than that which is stored`, 15},
}

func TestCommentsAreDirect(t *testing.T) {
	files := goFiles(t)
	for _, w := range commentForms {
		var found []string
		for _, f := range files {
			found = append(found, f.comments(w.form)...)
		}
		require.LessOrEqual(t, len(found), w.most, "%s: %s\n%s", w.form, w.advice, strings.Join(found, "\n"))
		t.Logf("%s: %d", w.form, len(found))
	}
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

func TestCommentForms(t *testing.T) {
	for text, wrong := range map[string]bool{
		"// full says whether": true, "// what was": true, "// the store tells": true,
		"// full reports whether there is room": false, "// saystems": false, "// somewhat isolated": false,
	} {
		matches := false
		for _, w := range commentForms {
			matches = matches || w.form.MatchString(text)
		}
		require.Equal(t, wrong, matches, text)
	}
}
