// Package ui contains the web page, and the endpoints that it needs in addition to Prometheus' API. cmd/cassia adds its
// routes to the server.
//
//	src/*.tsx ── npm run build ──► dist/ ── go:embed ──► NewRoutes: /, /assets/…, /graph
//	                                                               /api/v1/cassia/…   see api.go
//
// The page consists of an HTML file, a script and a style sheet. It sends requests only to its own server, and keeps
// its state in the fragment of its URL. It contains no secrets, so anyone may load it. It has its own login form for a
// password or a token.
//
// The folder test contains the unit tests of src, which units.mjs runs. The folder browser contains tests of the whole
// page in a browser.
//
// The folder dist is committed, so that building Cassia doesn't require Node. After a change in src or package.json,
// `make ui` rebuilds it (with Node 20). A test requires that dist is up to date.
package ui
