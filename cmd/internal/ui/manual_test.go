package ui

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/manual"
)

// requireWellFormed requires that all elements of a page are closed, except the elements that have no end tag in HTML.
func requireWellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta", "link", "input", "br", "hr", "img"}, xml.HTMLEntity
	open := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		switch token.(type) {
		case xml.StartElement:
			open++
		case xml.EndElement:
			open--
		}
	}
	require.Zero(t, open)
}

func TestManual(t *testing.T) {
	for path, want := range map[string]string{
		"/manual":                                "The manual",
		"/manual/rollups":                        "Retention and rollups",
		"/manual?q=backup+restore":               "manual/backups",
		"/manual?q=%3Cscript%3E":                 "&lt;script&gt;",
		"/manual?q=xyzzyplugh":                   "0 results for",
		"/manual?q=%20":                          "The manual",
		"/manual?q=" + strings.Repeat("x", 5000): "0 results for",
	} {
		r := get(t, testOptions(), path)
		require.Equal(t, http.StatusOK, r.StatusCode, path)
		require.Equal(t, "text/html; charset=utf-8", r.Header.Get("Content-Type"))
		policy := r.Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'")
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"))
		text := readBody(t, r)
		require.Contains(t, text, want, path)
		require.NotContains(t, text, "<script>")
		requireWellFormed(t, text)
		for _, name := range regexp.MustCompile(
			`(?:src|href)="((?:\.\./|\./)assets/[^"]*)"`,
		).FindAllStringSubmatch(text, -1) {
			file := strings.TrimLeft(name[1], "./")
			require.Equal(t, http.StatusOK, get(t, testOptions(), "/"+file).StatusCode, file)
		}
		require.Empty(t, regexp.MustCompile(`(src|href|action)="/`).FindString(text), "it works below any path")
		require.Empty(t, regexp.MustCompile(`src="https?:`).FindString(text), "it loads nothing from others")
	}
	for _, path := range []string{"/manual/nowhere", "/manual/images/nothing.webp", "/manual/images/..%2fREADME.md"} {
		require.Equal(t, http.StatusNotFound, get(t, testOptions(), path).StatusCode, path)
	}
}

// TestEveryPageOfTheManual checks that every page of the manual is served and that its links lead to existing pages.
func TestEveryPageOfTheManual(t *testing.T) {
	for _, topic := range manual.Topics() {
		r := get(t, testOptions(), "/manual/"+topic)
		require.Equal(t, http.StatusOK, r.StatusCode, topic)
		text := readBody(t, r)
		requireWellFormed(t, text)
		require.Contains(t, text, `aria-current="page"`)
		for _, m := range regexp.MustCompile(`href="([a-z-]+)(#[^"]*)?"`).FindAllStringSubmatch(text, -1) {
			_, ok := manual.FindPage(m[1])
			require.True(t, ok, "%s links to %s", topic, m[1])
		}
		for _, m := range regexp.MustCompile(`<img src="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			r := get(t, testOptions(), "/manual/"+m[1])
			require.Equal(t, http.StatusOK, r.StatusCode, m[1])
			require.Equal(t, "image/webp", r.Header.Get("Content-Type"))
			require.Equal(t, "image/webp", http.DetectContentType([]byte(readBody(t, r))))
		}
	}
}

// TestEveryViewHasItsPicture requires an image in the manual for each entry of the page's navigation.
// TestThePageInABrowser with -rewrite creates the images.
func TestEveryViewHasItsPicture(t *testing.T) {
	source, err := os.ReadFile("src/app.tsx")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(source), "const views: ")
	require.True(t, found)
	list, _, found = strings.Cut(list, "\n];")
	require.True(t, found)
	page, ok := manual.FindPage("web-page")
	require.True(t, ok)
	text, err := page.HTML("")
	require.NoError(t, err)
	views := regexp.MustCompile(`(?m)^  \['(\w+)', '`).FindAllStringSubmatch(list, -1)
	require.Len(t, views, strings.Count(list, "\n"), "a view a line")
	for _, view := range views {
		require.Contains(t, text, `<img src="images/`+view[1]+`.webp" alt="`)
	}
}

func TestEveryRouteIsInTheManual(t *testing.T) {
	page, err := os.ReadFile("../manual/http-api.md")
	require.NoError(t, err)
	for _, r := range NewRoutes(testOptions()) {
		path := strings.TrimSuffix(strings.TrimPrefix(r.Path, "GET "), "{$}")
		require.Contains(t, string(page), "`"+path+"`", "give it a line in the manual's http-api.md")
	}
}

// TestManualInABrowser opens every page of the manual in a real Chromium, see browser/manual.mjs. If CASSIA_UI_SHOTS is
// set, the screenshots are saved in that folder.
func TestManualInABrowser(t *testing.T) {
	needModules(t)
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: install Debian's package of that name")
	}
	mux := http.NewServeMux()
	for _, r := range NewRoutes(testOptions()) {
		mux.Handle(r.Path, r.Handler)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	shots := os.Getenv("CASSIA_UI_SHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	cmd := exec.CommandContext(t.Context(), "node", "browser/manual.mjs")
	cmd.Env = append(os.Environ(), "BASE="+server.URL, "CHROMIUM="+chromium, "SHOTS="+shots,
		"TOPICS="+strings.Join(manual.Topics(), " "))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Run(), "the output above says what went wrong")
}
