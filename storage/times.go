package storage

import (
	"time"
)

// maxTime bounds timestamps on both sides, milliseconds: some 285,000 years around 1970, so that distances
// of distances never overflow what they're stored in.
const maxTime = 1 << 53

const (
	hourMS = int64(time.Hour / time.Millisecond)
	dayMS  = 24 * hourMS
)
