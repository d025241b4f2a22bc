// Package cassiatest has helpers for tests of the program: those of package main, which run it in the process of the
// test, and those of package e2e, which run the binary. It has requests to a server, stores on disk, and time limits.
package cassiatest
