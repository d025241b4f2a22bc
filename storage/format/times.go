package format

import (
	"time"
)

// maxTime bounds timestamps on both sides, milliseconds: some 285,000 years around 1970, so that distances
// of distances never overflow what they're stored in.
const MaxTime = 1 << 53

const (
	HourMS = int64(time.Hour / time.Millisecond)
	DayMS  = 24 * HourMS
)
