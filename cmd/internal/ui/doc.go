// Package ui is the web page, and the endpoints that it needs in addition to Prometheus' API. cmd/cassia adds its
// Routes to the server.
//
//	src/*.tsx ── npm run build ──► dist/ ── go:embed ──► Routes: /, /assets/…, /graph
//	                                                            /api/v1/cassia/…   see api.go
//
// The page is an HTML file, a script and a style sheet. It sends requests only to its own server, and keeps its state
// in the fragment of its URL. It contains no secrets: anyone may load it, and it has its own form for a password or a
// token.
//
// test has the unit tests of src, which units.mjs runs. browser tests the whole page in a browser.
//
// dist is committed, so that building Cassia doesn't need Node. After a change in src or package.json, `make ui`
// rebuilds it (with Node 20). A test compares them.
package ui
