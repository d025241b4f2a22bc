package ui

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

// nothingThere is the page of a path that leads nowhere. It has no script, and its links are relative, whatever path a proxy has put
// all of it under.
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
<h1>Nothing is at <code>{{.Path}}</code></h1>
<p>These pages exist:</p>
<ul>
{{range .Views}}<li><a href="{{$.Root}}#/{{.Name}}">{{.Title}}</a>: {{.What}}</li>
{{end}}</ul>
<p>Prometheus’ HTTP API is below <code>/api/v1/</code>, Cassia’s own metrics are at <code>/metrics</code>, and the <a href="{{.Root}}manual">manual</a> explains the rest.</p>
</main>
</body>
</html>
`))

type viewOf struct{ Name, Title, What string }

var viewsOf = []viewOf{
	{"explore", "Explore", "queries, graphs, tables"},
	{"metrics", "Metrics", "all metrics and their meaning"},
	{"alerts", "Alerts & rules", "firing alerts and failing rules"},
	{"queries", "Queries", "running queries"},
	{"cardinality", "Cardinality", "series by metric and label"},
	{"downsampling", "Downsampling", "pending work, and sealed data by resolution"},
	{"storage", "Storage", "stored data and its retention"},
	{"tenants", "Tenants", "limits and their use"},
}

// NotFound answers for all paths that lead nowhere: browsers with a page, others as Prometheus does.
func NotFound(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	harden(w.Header())
	nonce := rand.Text()
	var text bytes.Buffer
	err := nothingThere.Execute(&text, map[string]any{"Nonce": nonce, "Path": r.URL.Path, "Root": rootOf(r.URL.Path), "Views": viewsOf})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", fmt.Sprintf(policy, nonce))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write(text.Bytes())
}

// rootOf leads from a path to the root of the server, without saying where that is.
func rootOf(path string) string {
	if deep := strings.Count(path, "/") - 1; deep > 0 {
		return strings.Repeat("../", deep)
	}
	return "./"
}
