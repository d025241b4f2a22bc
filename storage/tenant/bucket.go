package tenant

import (
	"math"
	"time"
)

// bucket is a token bucket. Its zero value is full.
type bucket struct {
	at    time.Time // the time at which level was computed; zero: never
	level float64
}

// refill adds the tokens that have accumulated since the last call, up to burst. rate is in tokens per second.
func (b *bucket) refill(now time.Time, rate, burst float64) {
	switch {
	case b.at.IsZero():
		b.level = burst
	case now.After(b.at):
		b.level += now.Sub(b.at).Seconds() * rate
	}
	b.at, b.level = now, min(b.level, burst)
}

// charge removes n tokens, at most burst. If the bucket has fewer, charge removes none and returns how long to wait.
func (b *bucket) charge(now time.Time, rate, burst, n float64) (wait time.Duration, ok bool) {
	b.refill(now, rate, burst)
	if b.level < n {
		seconds := (n - b.level) / rate
		return time.Duration(min(seconds*float64(time.Second), math.MaxInt64/2)), false
	}
	b.level -= n
	return 0, true
}

// refund returns tokens to the bucket.
func (b *bucket) refund(n float64) { b.level += n }
