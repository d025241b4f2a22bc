//go:build !race

package soak

// UnderRace is true in tests under the race detector, which makes tests about ten times slower.
const UnderRace = false
