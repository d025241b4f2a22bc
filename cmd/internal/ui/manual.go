package ui

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/cassia-db/cassia/cmd/internal/manual"
	"github.com/cassia-db/cassia/cmd/internal/server"
)

// manualPolicy is the content security policy of the manual. It lacks the permissions that only the page needs, and
// allows the search form.
const manualPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-%s'; img-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// maxSearch is the max length of a search in bytes.
const maxSearch = 200

// manualRoutes returns the routes of the manual. They are open, because the manual is the same for all users and
// contains no stored data.
func manualRoutes() []server.Route {
	row := func(path string, h http.HandlerFunc) server.Route {
		return server.Route{Path: "GET " + path, Name: "/manual", Role: server.Open, Handler: h}
	}
	return []server.Route{row("/manual", manualContents), row("/manual/{topic}", manualPage),
		row("/manual/images/{name}", manualPicture)}
}

// manualPicture serves an image. The response isn't cached forever, because another version of the program may have a
// different image with the same name.
func manualPicture(w http.ResponseWriter, r *http.Request) {
	p, err := manual.FindPicture(r.PathValue("name"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	setSecurityHeaders(w.Header())
	w.Header().Set("Content-Type", "image/webp")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = w.Write(p.Content)
}

// manualView is the data of the manual's template.
type manualView struct {
	Nonce, Title       string
	Root, Base         string // relative paths of the server's root and of the manual's pages
	Style, Theme, Icon string
	Groups             []manual.Group
	Topic              string
	Sections           []manual.Heading
	Heading, Text      template.HTML
	Searched           bool
	Query              string
	Results            []manual.Result
}

// manualContents serves the table of contents, or the results of a search.
func manualContents(w http.ResponseWriter, r *http.Request) {
	v := manualView{Title: "Manual", Root: "./", Base: "manual/",
		Query: strings.ToValidUTF8(firstBytes(strings.TrimSpace(r.URL.Query().Get("q")), maxSearch), "")}
	if v.Query != "" {
		v.Searched, v.Title = true, v.Query+" – Manual"
		v.Results = manual.SearchSections(v.Query)
		showManual(w, v)
		return
	}
	showManualPage(w, v, manual.Contents())
}

func manualPage(w http.ResponseWriter, r *http.Request) {
	p, ok := manual.FindPage(r.PathValue("topic"))
	if !ok {
		NotFound(w, r)
		return
	}
	showManualPage(w, manualView{Title: p.Title + " – Manual", Root: "../", Topic: p.Topic, Sections: p.Sections()}, p)
}

func showManualPage(w http.ResponseWriter, v manualView, p manual.Page) {
	text, err := pageText(p, v.Base)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	title, rest, _ := strings.Cut(text, "</h1>")
	v.Heading, v.Text = template.HTML(title+"</h1>"), template.HTML(rest) //nolint:gosec // They are the program's own.
	showManual(w, v)
}

// pageTexts caches the pages as HTML, by page and base. Rendering takes up to 30 ms, and anyone may request pages.
var pageTexts sync.Map

func pageText(p manual.Page, base string) (string, error) {
	key := [2]string{p.Topic, base}
	if text, ok := pageTexts.Load(key); ok {
		return text.(string), nil
	}
	text, err := p.HTML(base)
	if err == nil {
		pageTexts.Store(key, text)
	}
	return text, err
}

func showManual(w http.ResponseWriter, v manualView) {
	v.Nonce, v.Groups = rand.Text(), manual.Groups()
	names := assetNames()
	v.Style, v.Theme, v.Icon = names["style"], names["theme"], names["icon"]
	var b bytes.Buffer
	if err := manualTemplate.Execute(&b, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	setSecurityHeaders(w.Header())
	w.Header().Set("Content-Security-Policy", fmt.Sprintf(manualPolicy, v.Nonce))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes())
}

func firstBytes(s string, n int) string { return s[:min(n, len(s))] }

var assetName = regexp.MustCompile(`assets/(\w+)-\w+\.\w+`)

// assetNames returns the paths of the page's files, by the part of their names before the hash.
var assetNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	text, _ := dist.ReadFile("dist/index.html") // The file is embedded.
	for _, m := range assetName.FindAllStringSubmatch(string(text), -1) {
		names[m[1]] = m[0]
	}
	return names
})

// manualTemplate uses the page's style sheet and additional rules. Its only script sets the theme.
var manualTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"odd": func(i int) bool { return i%2 == 1 },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}} – Cassia</title>
<link rel="icon" href="{{.Root}}{{.Icon}}" type="image/svg+xml">
<link rel="stylesheet" href="{{.Root}}{{.Style}}">
<script src="{{.Root}}{{.Theme}}"></script>
<style nonce="{{.Nonce}}">
.manual { display: grid; grid-template-columns: 15rem minmax(0, 1fr); gap: 1.25rem 2.5rem; max-width: 80rem; width: 100%; margin: 0 auto; padding: 1.25rem; }
.manual-search { margin-left: auto; display: flex; gap: 0.5rem; min-width: 0; }
.manual-search input { width: 18rem; }
.manual-list h2 { font-size: 0.8125rem; font-weight: 550; color: var(--muted); margin: 1rem 0 0.2rem; }
.manual-list a { display: block; padding: 0.15rem 0; color: var(--text); text-decoration: none; }
.manual-list a:hover { text-decoration: underline; }
.manual-list a[aria-current] { color: var(--accent); font-weight: 550; }
.manual main { padding: 0; margin: 0; grid-column: 2; grid-row: 1; }
.manual-list { grid-column: 1; grid-row: 1; }
.to-pages { display: none; }
article { min-width: 0; overflow-wrap: break-word; max-width: 60rem; }
article h1 { font-size: 1.5rem; font-weight: 650; letter-spacing: -0.01em; }
article h2 { font-size: 1.1875rem; font-weight: 600; margin-top: 2rem; scroll-margin-top: 4.5rem; }
article h3 { font-size: 1rem; font-weight: 600; margin-top: 1.4rem; scroll-margin-top: 4.5rem; }
article > * + * { margin-top: 0.8rem; }
article ul { list-style: disc; padding-left: 1.4rem; } article ol { list-style: decimal; padding-left: 1.6rem; }
article li + li { margin-top: 0.25rem; }
article table code { overflow-wrap: anywhere; }
article th { white-space: normal; }
article [align='right'] { text-align: right; font-variant-numeric: tabular-nums; }
article td { overflow-wrap: break-word; min-width: 5rem; }
article img { display: block; max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 8px; }
.sections { border-left: 2px solid var(--line); padding-left: 0.9rem; font-size: 0.875rem; }
.sections a { display: inline-block; margin-right: 1.2rem; }
.found h2 { font-size: 1rem; margin-top: 1.2rem; } .found p { color: var(--muted); font-size: 0.875rem; }
mark { background: var(--select); color: inherit; }
@media (max-width: 800px) {
  .manual { grid-template-columns: minmax(0, 1fr); padding: 0.9rem; gap: 0.5rem; }
  .manual-search input { width: 100%; }
  .manual main { grid-column: 1; }
  .manual-list { grid-row: 2; border-top: 1px solid var(--line); }
  .to-pages { display: inline; }
  .top { padding: 0.5rem 0.9rem; gap: 0.4rem 0.9rem; }
}
</style>
</head>
<body>
<a class="skip" href="#text">Skip to content</a>
<a class="skip" href="#pages">Skip to list of pages</a>
<header class="top">
<a class="brand" href="{{.Root}}"><svg class="logo" viewBox="0 0 32 32" aria-hidden="true"><path class="logo-deep" d="M5 22.5c4.5 4 17.5 4 22 0"/><path class="logo-mid" d="M5 16c4.5 4 17.5 4 22 0"/><ellipse class="logo-top" cx="16" cy="9.5" rx="11" ry="4.6"/></svg> <span>Cassia</span></a>
<a href="{{.Root}}manual">Manual</a>
<a class="to-pages" href="#pages">Pages</a>
<form class="manual-search" action="{{.Root}}manual" role="search"><input type="search" name="q" value="{{.Query}}" maxlength="200" placeholder="Search the manual" aria-label="Search the manual"><button>Search</button></form>
</header>
<div class="manual">
<main id="text" tabindex="-1"><article>
{{if .Searched}}<h1>{{len .Results}} {{if eq (len .Results) 1}}result{{else}}results{{end}} for “{{.Query}}”</h1>
{{range .Results}}<div class="found"><h2><a href="{{$.Base}}{{.Page.Topic}}{{if gt .Heading.Level 1}}#{{.Heading.Anchor}}{{end}}">{{.Page.Title}}{{if gt .Heading.Level 1}}: {{.Heading.Title}}{{end}}</a></h2>
<p>{{range $i, $piece := .Excerpt}}{{if $i | odd}}<mark>{{$piece}}</mark>{{else}}{{$piece}}{{end}}{{end}}</p></div>
{{else}}<p>No section contains all of these words. Try fewer or shorter words.</p>
{{end}}{{else}}{{.Heading}}
{{if gt (len .Sections) 2}}<nav class="sections" aria-label="Sections of this page">{{range .Sections}}<a href="#{{.Anchor}}">{{.Title}}</a> {{end}}</nav>
{{end}}{{.Text}}{{end}}</article></main>
<nav class="manual-list" id="pages" aria-label="Pages of the manual">
{{range .Groups}}<h2>{{.Title}}</h2>
{{range .Pages}}<a href="{{$.Base}}{{.Topic}}"{{if eq .Topic $.Topic}} aria-current="page"{{end}}>{{.Title}}</a>
{{end}}{{end}}</nav>
</div>
</body>
</html>
`))
