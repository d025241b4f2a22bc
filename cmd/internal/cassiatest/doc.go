// Package cassiatest has what the tests of the program share, those of package main, which run it in their own process, and
// those of package e2e, which run the real program: requests to a server, stores on disk, and how long to wait.
package cassiatest
