// Package ui is the web page, and what it asks beside Prometheus' API.
//
//	src/*.tsx ── npm run build ──► dist/ ── go:embed ──► Routes: /, /assets/…, /graph
//	                                                            /api/v1/cassia/…   what stands in api.go
//
// The page is one file of HTML, one script and one style sheet. It asks no other host, keeps its state in the part of
// its address behind the #, and holds no secret: everybody may load it, and it asks for a password or a token itself.
//
// test has the tests of what src computes, which units.mjs runs; browser clicks through the whole page.
//
// dist is committed, so that building Cassia needs no Node. After a change in src or package.json, `make ui` makes it
// anew (it needs Node 20); a test compares.
package ui
