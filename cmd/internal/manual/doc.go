// Package manual is Cassia's manual. Each topic is a Markdown file next to this source, so that it can be read in the
// repository, and is embedded in the program. README.md is the table of contents and lists the topics in their order.
// The package is read-only, and its functions are safe for concurrent use.
//
//	*.md ──► Page ──► HTML     for the page at /manual, see cmd/internal/ui
//	           ├────► Text     for a terminal: cassia help TOPIC
//	           └────► Search   sections that have all words
//
// images has its pictures. The browser test of the web page writes them.
package manual
