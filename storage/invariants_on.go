//go:build invariants

package storage

// invariants switches on assertions that cost too much for every day: see make race.
const invariants = true
