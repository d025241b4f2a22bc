// Package soak provides the seeds of randomized tests, and lets tests run longer on request: `make soak` runs them
// repeatedly, each round with another seed.
//
//	CASSIA_SEED=N    the seed of every test that draws one, to repeat a failed test
//	CASSIA_SOAK=N    multiplies the work of these tests relative to `make test`
//
// A test that fails logs the command that repeats it. Tests of all packages use this package, and cmd/tools/soak runs
// the rounds. It contains no production code.
package soak
