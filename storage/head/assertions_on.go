//go:build invariants

package head

// assertions enables assertions that are too expensive for production, see make race.
const assertions = true
