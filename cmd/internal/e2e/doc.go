// Package e2e tests the real program: it builds cassia, starts it with a real Prometheus, Grafana, Cassandra and other
// programs, kills it, and compares its responses. It contains only tests. Tests that run the program in their own
// process are in package main, next to the code.
//
// To measure which statements of the program these tests run, set a folder for coverage data. Programs that are killed
// don't write any.
//
//	mkdir /tmp/cover
//	CASSIA_TEST_COVER=/tmp/cover go test ./cmd/internal/e2e
//	go tool covdata percent -i=/tmp/cover
package e2e
