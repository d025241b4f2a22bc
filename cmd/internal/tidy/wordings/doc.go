// Package wordings counts stilted wordings in texts for users (the web page, help, messages, the manual, README,
// CHANGELOG and the examples), in design pages, and in the comments of Go files. The list of wordings is a floor, not a
// definition of good English: a text without any of them can still be hard to read.
//
//	root ──► Collect         ──► []Text by kind ────────► Find ──► []Hit, and words and hits per kind
//	     └─► CollectComments ──► []Text ──► ByFolder ──┘
//
// Command count prints them. Tests in package tidy bound their number per 1,000 words, for each kind and for the
// comments of each folder.
package wordings
