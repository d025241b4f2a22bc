//go:build !race

package soak

// UnderRace is true in tests under the race detector, where all takes some ten times as long.
const UnderRace = false
