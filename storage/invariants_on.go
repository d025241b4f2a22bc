//go:build invariants

package storage

// invariants enables assertions that are too expensive for production: see make race.
const invariants = true
