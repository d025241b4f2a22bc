// Package cassiatest contains helpers for tests of the program: tests in package main, which run it in their own
// process, and tests in package e2e, which run the binary. The helpers send requests to a server, create stores on
// disk, and define time limits.
package cassiatest
