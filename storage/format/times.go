package format

import "time"

// MaxTime is the max absolute value of timestamps in milliseconds, about 285,000 years from 1970. It ensures that
// differences of differences don't overflow.
const MaxTime = 1 << 53

// Durations in milliseconds.
const (
	HourMS = int64(time.Hour / time.Millisecond)
	DayMS  = 24 * HourMS
	// YoungMS is the max age of a slot that must stay listed. For a day, a writer may rely on a row that it has
	// written. The second day allows for differences between clocks, which are less than a day.
	YoungMS = 2 * DayMS
)
