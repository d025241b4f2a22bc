// Package wordings counts stilted wordings in the texts that users read (the web page, help, messages, the manual, README,
// CHANGELOG and the examples), in design pages and in the comments of Go files. The list of wordings is a floor, not a definition of good English:
// a text without any of them can still be hard to read.
//
//	root ──► Collect         ──► []Text by kind ────────► Find ──► []Hit, and per kind words and hits
//	     └─► CollectComments ──► []Text ──► ByFolder ──┘
//
// The command count prints them; tests in package tidy hold the number per 1,000 words of each kind, and of the comments of each
// folder, to bounds.
package wordings
