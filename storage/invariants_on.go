//go:build invariants

package storage

// invariants switches on assertions that cost too much for every day: see make invariants.
const invariants = true
