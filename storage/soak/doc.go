// Package soak provides the seeds of randomized tests and the amount of their work. Tests of all packages call it.
// `make test` runs each test briefly; `make soak` (cmd/tools/soak) runs them repeatedly, each round with another seed.
// It contains no production code.
//
//	CASSIA_SEED=N    the seed of every test that calls Seed, FirstSeed or Seeds, to repeat a failed test
//	CASSIA_SOAK=N    multiplies the work of tests that call Times, Histories or Amount
//
// A test must draw all of its random values from its seed. Otherwise the command that is logged when the test fails
// doesn't repeat the failure. Under the race detector, tests that call Histories or Fewer do about a fifth of the work.
package soak
