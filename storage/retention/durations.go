package retention

import (
	"fmt"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// Never is the end of a range that contains no rows.
	Never = -format.MaxTime
	// Grace is the time for which a window may still exist after its retention has ended.
	Grace = 7 * 24 * time.Hour
)

// Durations is the retention of rows by resolution; 0 means forever.
type Durations struct{ Raw, FiveMinutes, OneHour time.Duration }

// Duration returns the retention of rows of a resolution.
func (k Durations) Duration(res rollup.Resolution) time.Duration {
	switch res {
	case rollup.FiveMinutes:
		return k.FiveMinutes
	case rollup.OneHour:
		return k.OneHour
	default:
		return k.Raw
	}
}

// Check returns an error if the retentions contradict each other, or are shorter than a slot.
func (k Durations) Check(slot time.Duration) error {
	switch {
	case k.Raw < 0 || k.Raw > 0 && k.Raw < slot:
		return fmt.Errorf("storage: the retention %v is shorter than a slot of %v", k.Raw, slot)
	case isShorter(k.FiveMinutes, k.Raw) || isShorter(k.OneHour, k.FiveMinutes):
		return fmt.Errorf(
			"storage: 5m rollups must be kept at least as long as raw samples (%v), and 1h rollups at least as long "+
				"as 5m rollups (%v), not %v and %v",
			k.Raw, k.FiveMinutes, k.FiveMinutes, k.OneHour,
		)
	}
	return nil
}

// isShorter reports whether retention a is shorter than b, where 0 means forever. Both have the same unit.
func isShorter[T time.Duration | int64](a, b T) bool { return a != 0 && (b == 0 || a < b) }

func longerDuration(a, b time.Duration) time.Duration {
	if isShorter(a, b) {
		return b
	}
	return a
}

// longerOf returns the longer of both retentions for each resolution.
func (k Durations) longerOf(other Durations) Durations {
	return Durations{
		longerDuration(k.Raw, other.Raw),
		longerDuration(k.FiveMinutes, other.FiveMinutes),
		longerDuration(k.OneHour, other.OneHour),
	}
}

// text returns the retention at all resolutions as text.
func (k Durations) text() string {
	return fmt.Sprintf(
		"raw %s, 5m %s, 1h %s", durationText(k.Raw), durationText(k.FiveMinutes), durationText(k.OneHour),
	)
}

// durationText returns a retention as text.
func durationText(kept time.Duration) string {
	if kept == 0 {
		return "forever"
	}
	return kept.String()
}

// isWindowPast reports whether a window is past its retention and the grace period.
func (k Durations) isWindowPast(p *format.Periods, window int64, now time.Time) bool {
	kept := k.Duration(format.ResolutionOf(window))
	return kept != 0 && p.WindowEnd(window) <= PastUntil(now, kept+Grace)
}

// PastUntil returns the newest timestamp, in milliseconds, that a retention doesn't keep. It returns Never if the
// retention is unlimited.
func PastUntil(now time.Time, kept time.Duration) int64 {
	if kept == 0 {
		return Never
	}
	return now.Add(-kept).UnixMilli()
}

// periodsOfNewStore are the periods of a store that was created with the default options.
var periodsOfNewStore = format.NewPeriods(format.Period{
	SlotMS: format.HourMS, RawWindowMS: format.DayMS, Partitions: 1,
})

// FinestImported returns the finest resolution at which Import stores a sample with timestamp t, in milliseconds, of a
// series with this retention. stored is false if the sample isn't stored. Rows that a store has already removed aren't
// considered.
func (k Durations) FinestImported(t int64, now time.Time) (finest rollup.Resolution, stored bool) {
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		if !k.isWindowPast(periodsOfNewStore, periodsOfNewStore.WindowAt(res, t), now) {
			return res, true
		}
	}
	return 0, false
}

// KeptMS is a Durations in its stored form, in milliseconds.
type KeptMS struct {
	RawMS         int64 `json:"raw_ms"`
	FiveMinutesMS int64 `json:"5m_ms"`
	OneHourMS     int64 `json:"1h_ms"`
}

func toKeptMS(k Durations) KeptMS {
	return KeptMS{k.Raw.Milliseconds(), k.FiveMinutes.Milliseconds(), k.OneHour.Milliseconds()}
}

func (k KeptMS) durations() Durations {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Durations{ms(k.RawMS), ms(k.FiveMinutesMS), ms(k.OneHourMS)}
}
