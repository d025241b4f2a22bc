// Package tidy holds the laws of this repository, as tests: which package may import which, how long a file
// and a function may be, that every package has a comment, how many stilted wordings the texts for users and the comments of each
// package may have (package wordings lists them), and that nothing names a single person's machine. A broken law's message has the
// remedy.
package tidy
