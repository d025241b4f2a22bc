//go:build invariants

package storage

// assertions switches on assertions that cost too much for every day: see make race.
const assertions = true
