// Package e2e tests the real program from outside: it builds cassia, starts it beside real Prometheus, Grafana, Cassandra and
// others, kills it, and compares what it answers. It has tests only; what runs in the test's own process is tested in
// package main, beside the code.
package e2e
