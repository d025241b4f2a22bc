// Package manual is Cassia's manual. Each topic is a Markdown file next to this source, so that it can be read in the
// repository, and is embedded in the program. README.md is the table of contents. It lists the topics in their order.
// The functions of the package are safe for concurrent use.
//
//	*.md ──► Page ──► HTML     for the page at /manual, see cmd/internal/ui
//	           ├────► Text     for a terminal: cassia help TOPIC
//	           └────► SearchSections     sections that contain all words
//
// The folder images contains the screenshots. They are written by the browser test of the web interface.
package manual
