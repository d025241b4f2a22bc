// Package tidy contains the laws of this repository, as tests: which package may import which, the max length of files
// and functions, a comment for every package, the max number of stilted wordings in texts for users and in the comments
// of each package (see package wordings), and no names of a single machine. No package imports it; go test runs it.
// When a law is broken, the failure message names the remedy.
package tidy
