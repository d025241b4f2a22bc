// Package wordings counts stilted wordings in the texts that users read: the web page, help, messages, the manual, README, CHANGELOG
// and the examples, and in the design pages. The list of wordings is a floor, not a definition of good English: a text without any of them can still be hard
// to read.
//
//	root ──► Collect ──► []Text by kind ──► Find ──► []Hit, and per kind words and hits
//
// The command count prints them; a test in package tidy holds the number per 1,000 words of each kind to a bound.
package wordings
