//go:build !invariants

package head

const assertions = false
