//go:build race

package storage

// underRace is true if all is some ten times slower: fewer histories are drawn.
const underRace = true

// fewer is how many of n things are tried, at least 1: there is nothing to race where all is done one after the other.
func fewer(n int) int { return max(1, n/5) }
