package rollup

import "fmt"

// Resolution is the granularity of stored samples: raw samples, or buckets of one width.
type Resolution uint8

// The resolutions, from the finest. The numbers are stored in keys and must never be reused.
const (
	Raw Resolution = iota
	FiveMinutes
	OneHour
)

// Resolutions lists the resolutions of buckets, the finest first.
var Resolutions = [...]Resolution{FiveMinutes, OneHour}

// Width returns the width of a bucket in milliseconds; 0 for Raw.
func (r Resolution) Width() int64 {
	switch r {
	case FiveMinutes:
		return 5 * 60 * 1000
	case OneHour:
		return 60 * 60 * 1000
	default:
		return 0
	}
}

// String returns raw, 5m or 1h.
func (r Resolution) String() string {
	switch r {
	case Raw:
		return "raw"
	case FiveMinutes:
		return "5m"
	case OneHour:
		return "1h"
	default:
		return fmt.Sprintf("resolution %d", uint8(r))
	}
}
