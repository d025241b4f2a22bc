//go:build invariants

package head

// assertions switches on assertions that cost too much for every day: see make race.
const assertions = true
