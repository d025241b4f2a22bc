package manual

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark/ast"
)

// shownPictures returns the names of the pictures on a page, with their alternative texts.
func shownPictures(t *testing.T, p Page) map[string]string {
	names := map[string]string{}
	require.NoError(t, ast.Walk(p.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if image, ok := n.(*ast.Image); ok && entering {
			names[strings.TrimPrefix(string(image.Destination), picturesFolder+"/")] = plainText(image, p.source)
		}
		return ast.WalkContinue, nil
	}))
	return names
}

// TestPictures checks that each picture is used on a page and is large enough, and that their total size is small,
// because they are embedded in the program.
func TestPictures(t *testing.T) {
	names, err := fs.Glob(pictureFiles, picturesFolder+"/*")
	require.NoError(t, err)
	shown := map[string]string{}
	everyPage(t, func(t *testing.T, p Page) {
		for name, text := range shownPictures(t, p) {
			shown[name] = text
		}
	})
	all := 0
	for _, name := range names {
		name = strings.TrimPrefix(name, picturesFolder+"/")
		require.Contains(t, shown, name, "no page shows it")
		p, err := FindPicture(name)
		require.NoError(t, err, name)
		require.Greater(t, p.Width, 900, name)
		require.Greater(t, p.Height, 400, name)
		all += len(p.Content)
	}
	require.Len(t, names, len(shown))
	require.Less(t, all, 600_000, "bytes of all pictures")
}

func TestPicturesOnAPage(t *testing.T) {
	p, ok := FindPage("web-page")
	require.True(t, ok)
	served := regexp.MustCompile(
		`<img src="manual/images/\w+\.webp" alt="[^"]+" width="\d+" height="\d+" loading="lazy" />`,
	)
	text, err := p.HTML("manual/")
	require.NoError(t, err)
	require.Len(t, served.FindAllString(text, -1), len(shownPictures(t, p)))
	for name, about := range shownPictures(t, p) {
		require.NotContains(t, p.Text(80), name)
		require.NotContains(t, p.Text(10000), about, "a terminal shows no pictures, and no texts in their place")
	}

	bad := Page{source: []byte("# T\n\n![x](images/nothing.webp)\n")}
	_, err = bad.HTML("")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = FindPicture("../README.md")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestSizeOfWebP(t *testing.T) {
	for _, text := range []string{"", "RIFF", "RIFF....WEBPVP8L..................", strings.Repeat("x", 100)} {
		_, _, err := sizeOfWebP([]byte(text))
		require.ErrorIs(t, err, errNoWebP)
	}
}
