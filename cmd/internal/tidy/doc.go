// Package tidy holds the laws of this repository, as tests: which package may import which, how long a file
// and a function may be, that every package has a comment, how comments are worded, and that nothing names a single person's machine.
// A broken law's message has the remedy.
package tidy
