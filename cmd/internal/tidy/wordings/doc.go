// Package wordings counts stilted wordings in texts for users (the web page, help, messages, the manual, README,
// CHANGELOG and the examples), in design pages, and in the comments of Go files. Avoiding the listed wordings isn't
// sufficient for good English: a text without them can still be hard to read.
//
//	root ──► Collect         ──► []Text by kind ────────► FindHits ──► []Hit, and words and hits per kind
//	     └─► CollectComments ──► []Text ──► ByFolder ──┘
//
// Command count prints the stilted wordings. Tests in package tidy limit their number per 1,000 words, for each kind of
// text and for the comments of each folder.
package wordings
