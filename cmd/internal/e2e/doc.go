// Package e2e tests the real program from outside: it builds cassia, starts it beside real Prometheus, Grafana, Cassandra and
// others, kills it, and compares what it answers. It has tests only; what runs in the test's own process is tested in
// package main, beside the code.
//
// To see which statements of the program these tests run, name a folder for that; programs that are killed tell nothing:
//
//	mkdir /tmp/cover
//	CASSIA_TEST_COVER=/tmp/cover go test ./cmd/internal/e2e
//	go tool covdata percent -i=/tmp/cover
package e2e
