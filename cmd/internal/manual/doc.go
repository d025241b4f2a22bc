// Package manual is Cassia's manual: a Markdown file per topic beside this source, so that it can be read where the repository is
// browsed, built into the program. README.md is its table of contents, and lists the topics in their order.
//
//	*.md ──► Page ──► HTML     for the page at /manual, see cmd/internal/ui
//	           ├────► Text     for a terminal: cassia help TOPIC
//	           └────► Search   sections that have all words
//
// images has its pictures, which the test of the web page in a browser makes.
package manual
