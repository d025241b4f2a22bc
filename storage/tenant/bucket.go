package tenant

import (
	"math"
	"time"
)

// bucket is a token bucket. Its zero value is full.
type bucket struct {
	at    time.Time // the time of level; zero: never
	level float64
}

// fill updates the bucket to now. rate is tokens per second.
func (b *bucket) fill(now time.Time, rate, burst float64) {
	switch {
	case b.at.IsZero():
		b.level = burst
	case now.After(b.at):
		b.level += now.Sub(b.at).Seconds() * rate
	}
	b.at, b.level = now, min(b.level, burst)
}

// take takes n tokens. If there are too few, it takes none and returns how long to wait. n is at most burst.
func (b *bucket) take(now time.Time, rate, burst, n float64) (wait time.Duration, ok bool) {
	b.fill(now, rate, burst)
	if b.level < n {
		seconds := (n - b.level) / rate
		return time.Duration(min(seconds*float64(time.Second), math.MaxInt64/2)), false
	}
	b.level -= n
	return 0, true
}

// give returns tokens to the bucket.
func (b *bucket) give(n float64) { b.level += n }
