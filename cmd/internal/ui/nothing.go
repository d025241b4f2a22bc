package ui

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

// nothingThere is the page for unknown paths. It has no script. Its links are relative, so that they work if a proxy
// serves the page under a path.
var nothingThere = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Not found – Cassia</title>
<style nonce="{{.Nonce}}">
html { color-scheme: light dark; background: light-dark(#f6f5f1, #131519); color: light-dark(#1e2227, #e7e6e2); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 40rem; margin: 12vh auto 0; padding: 1.25rem; }
h1 { font-size: 1.375rem; overflow-wrap: anywhere; }
code { font-family: ui-monospace, monospace; font-size: 0.9em; }
a { color: light-dark(#a5481a, #f0a15c); }
li { margin: 0.3rem 0; }
</style>
</head>
<body>
<main>
<h1>Page not found: <code>{{.Path}}</code></h1>
<p>Cassia’s web page has these views:</p>
<ul>
{{range .Views}}<li><a href="{{$.Root}}#/{{.Name}}">{{.Title}}</a>: {{.What}}</li>
{{end}}</ul>
<p>Prometheus’ HTTP API is under <code>/api/v1/</code> and Cassia’s own metrics are at <code>/metrics</code>. For more, see the <a href="{{.Root}}manual">manual</a>.</p>
</main>
</body>
</html>
`))

type viewOf struct{ Name, Title, What string }

var viewsOf = []viewOf{
	{"explore", "Explore", "run queries and show results as graphs or tables"},
	{"metrics", "Metrics", "search metrics by name or help text"},
	{"alerts", "Alerts & rules", "firing alerts and the state of all rules"},
	{"queries", "Queries", "running queries and top queries"},
	{"cardinality", "Cardinality", "number of series by metric, label and value"},
	{"downsampling", "Downsampling", "progress of sealing, and sealed data by resolution"},
	{"storage", "Storage", "disk usage, retention and backups"},
	{"relabel", "Relabel", "rules that drop or change incoming series"},
	{"tenants", "Tenants", "limits and their current use"},
}

// NotFound serves unknown paths: a page for browsers, and Prometheus' response for other clients.
func NotFound(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	setSecurityHeaders(w.Header())
	nonce := rand.Text()
	var text bytes.Buffer
	err := nothingThere.Execute(&text, map[string]any{"Nonce": nonce, "Path": r.URL.Path,
		"Root": rootOf(r.URL.Path), "Views": viewsOf})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", fmt.Sprintf(contentPolicy, nonce))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write(text.Bytes())
}

// rootOf returns the relative path from a path to the root of the server.
func rootOf(path string) string {
	if deep := strings.Count(path, "/") - 1; deep > 0 {
		return strings.Repeat("../", deep)
	}
	return "./"
}
