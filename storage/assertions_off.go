//go:build !invariants

package storage

const assertions = false
