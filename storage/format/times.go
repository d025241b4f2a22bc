package format

import "time"

// MaxTime bounds timestamps on both sides, milliseconds: some 285,000 years around 1970, so that distances
// of distances never overflow what they're stored in.
const MaxTime = 1 << 53

// Lengths of time, milliseconds.
const (
	HourMS = int64(time.Hour / time.Millisecond)
	DayMS  = 24 * HourMS
	// YoungMS is the age until which a slot stays listed. Up to an age of a day a writer may rely on a row that it has written
	// itself; clocks may differ by less than the day between.
	YoungMS = 2 * DayMS
)
