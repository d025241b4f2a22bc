// Package cassiatest has helpers for tests of the program: tests in package main, which run it in their own process,
// and tests in package e2e, which run the binary. It has requests to a server, stores on disk, and time limits.
package cassiatest
