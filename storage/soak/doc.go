// Package soak draws the seeds of tests that try something else in every run, and lets these tests go on for longer
// where somebody has the time: `make soak` runs them, round after round, each with another seed.
//
//	CASSIA_SEED=N    the seed of every test that draws one, to run a failed test again
//	CASSIA_SOAK=N    how many times as much such a test does as in `make test`
//
// A test that fails prints the command that repeats it.
package soak
