//go:build !race

package storage

// underRace is true if all is some ten times slower: fewer histories are drawn.
const underRace = false

// fewer is how many of n things are tried.
func fewer(n int) int { return n }
