package format

import "time"

// MaxTime bounds timestamps on both sides, milliseconds: some 285,000 years around 1970, so that distances
// of distances never overflow what they're stored in.
const MaxTime = 1 << 53

// Lengths of time, milliseconds.
const (
	HourMS = int64(time.Hour / time.Millisecond)
	DayMS  = 24 * HourMS
)
