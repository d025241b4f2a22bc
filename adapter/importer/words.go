package importer

import (
	"fmt"
	"time"
)

// formatInstant formats a timestamp, in milliseconds, for people.
func formatInstant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05") }

// countSamples formats a number of samples for people.
func countSamples[T int | int64](n T) string {
	if n == 1 {
		return "1 sample"
	}
	return fmt.Sprintf("%d samples", n)
}
