// Package cassia holds the version of this source, from the file VERSION. Program, release, packages and chart all take
// it from there.
package cassia

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

// Version is the version of this source, such as 1.2.3 or 1.2.3-dev.
func Version() string { return strings.TrimSpace(version) }
