package config

import (
	"fmt"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	"github.com/prometheus/common/model"
)

// valueKind is the syntax of a flag's value.
type valueKind int

const (
	unitCount      valueKind = iota // such as 12
	unitBytes                       // such as 512MiB
	unitDuration                    // such as 90s or 2d
	unitGoDuration                  // in Go's syntax, such as 90s or 48h
	unitFraction                    // such as 0.5
)

// valueRange is the range of a flag's value: a count, a number of bytes, or a number of nanoseconds.
type valueRange struct {
	kind     valueKind
	min, max float64
	// allowsZero is set if 0 is also valid. It usually means a default or no limit.
	allowsZero bool
}

// Upper limits that exceed every practical need but don't cause overflows.
const (
	maxBytes   = 1 << 50
	maxNumber  = 1e12
	maxLasting = year
	maxKept    = 100 * year
)

func count(low, high float64) valueRange {
	return valueRange{kind: unitCount, min: low, max: high}
}
func bytesFrom(low int64) valueRange {
	return valueRange{kind: unitBytes, min: float64(low), max: maxBytes}
}
func duration(low, high time.Duration) valueRange {
	return valueRange{kind: unitDuration, min: float64(low), max: float64(high)}
}
func goDuration(low, high time.Duration) valueRange {
	return valueRange{kind: unitGoDuration, min: float64(low), max: float64(high)}
}
func fraction(high float64) valueRange    { return valueRange{kind: unitFraction, max: high} }
func (r valueRange) withZero() valueRange { r.allowsZero = true; return r }

// valueRanges contains the ranges of all flags whose values are numbers, bytes or durations, by name. A flag that
// multiple commands have has the same range in each.
var valueRanges = map[string]valueRange{
	"storage.partitions": count(1, 4096).withZero(), "storage.slot": duration(time.Hour, 24*time.Hour),
	"storage.settle":   duration(0, 24*time.Hour),
	"memory.max-bytes": bytesFrom(minMemory), "storage.head-bytes": bytesFrom(minHead),
	"storage.cache-bytes":   {kind: unitBytes, min: minCache, max: maxCache},
	"retention.raw":         duration(0, maxKept),
	"retention.5m":          duration(0, maxKept),
	"retention.1h":          duration(0, maxKept),
	"query.timeout":         duration(time.Millisecond, maxLasting),
	"query.lookback-delta":  duration(time.Second, maxLasting),
	"query.log-slower-than": duration(0, maxLasting),
	"query.max-samples":     count(1, maxNumber), "query.max-concurrency": count(1, 10_000),
	"query.max-bytes": bytesFrom(minQuery), "query.unread-bytes": bytesFrom(minQuery),
	"ha.failover-timeout": duration(time.Second, 10*time.Minute), "ha.held-bytes": bytesFrom(16 << 20),
	"ha.max-clusters":          count(1, 1_000_000),
	"rule.evaluation-interval": duration(time.Second, maxLasting),
	"backup.every":             duration(time.Minute, maxLasting),
	"backup.keep":              count(0, 1_000_000), "backup.keep-hourly": count(0, 1_000_000),
	"backup.keep-daily": count(0, 1_000_000), "backup.keep-weekly": count(0, 1_000_000),
	"cassandra.timeout": goDuration(100*time.Millisecond, 10*time.Minute),

	// Flags of commands other than serve.
	"keep": count(0, 1_000_000), "keep-hourly": count(0, 1_000_000), "keep-daily": count(0, 1_000_000),
	"keep-weekly":      count(0, 1_000_000),
	"slot":             duration(time.Hour, 24*time.Hour).withZero(),
	"window":           duration(24*time.Hour, maxLasting).withZero(),
	"partitions":       count(1, 4096).withZero(),
	"kairosdb.timeout": goDuration(100*time.Millisecond, 10*time.Minute), "kairosdb.readers": count(1, 128),
	"kairosdb.batch-bytes": {kind: unitBytes, min: 1 << 10, max: 1 << 30},
	"piece":                duration(time.Minute, 24*time.Hour), "timeout": goDuration(time.Millisecond, time.Hour),
	"senders": count(1, 10_000), "request-samples": count(1, 1_000_000), "retry-for": goDuration(0, 24*time.Hour),
	"series":   count(1, 100_000_000),
	"interval": goDuration(time.Millisecond, 24*time.Hour), "duration": goDuration(time.Millisecond, maxKept),
	"speed": fraction(maxNumber), "rate": fraction(maxNumber),
	"churn": fraction(60), "histograms": count(0, 1000), "odd": count(0, 1000), "late-percent": count(0, 100),
	"late-steps":   count(0, 1_000_000),
	"extra-labels": count(0, 1000), "pid": count(0, 1<<22),
}

// CheckRanges returns an error if the value of a flag is outside of its range. It names the first such flag and the
// range.
func CheckRanges(flags []*kingpin.FlagModel) error {
	for _, f := range flags {
		r, ok := valueRanges[f.Name]
		if !ok {
			continue
		}
		if v, ok := r.value(f.Value); ok && !r.contains(v) {
			return flagError(f.Name, f.Value.String(), r.requirement())
		}
	}
	return nil
}

// WrongValue returns an error if a flag among the arguments has an invalid value or a value outside of its range. It
// names the first such flag and the range. It quotes the value as typed, because parsing changes a number that doesn't
// fit in 64 bits.
func WrongValue(app *kingpin.Application, args []string) error {
	context, _ := app.ParseContext(args)
	if context == nil {
		return nil
	}
	for _, e := range context.Elements {
		f, ok := e.Clause.(*kingpin.FlagClause)
		if !ok || e.Value == nil {
			continue
		}
		r, ok := valueRanges[f.Model().Name]
		if !ok {
			continue
		}
		set := f.Model().Value
		err := set.Set(*e.Value)
		v, read := r.value(set)
		if typed, err := strconv.ParseFloat(*e.Value, 64); err == nil && r.kind == unitCount {
			v = typed
		}
		unreadable := r.kind == unitDuration && !read && *e.Value != ""
		if err != nil || unreadable || read && !r.contains(v) {
			return flagError(f.Model().Name, *e.Value, r.requirement())
		}
	}
	return nil
}

// value returns the value of a flag as a number, even if the flag's text is parsed later. It returns false for a value
// that can't be parsed, for which the parser returns an error.
func (r valueRange) value(v kingpin.Value) (float64, bool) {
	if getter, ok := v.(kingpin.Getter); ok {
		switch v := getter.Get().(type) {
		case int:
			return float64(v), true
		case int64:
			return float64(v), true
		case float64:
			return v, true
		case units.Base2Bytes:
			return float64(v), true
		case time.Duration:
			return float64(v), true
		}
	}
	if r.kind != unitDuration || v.String() == "" {
		return 0, false
	}
	d, err := model.ParseDuration(v.String())
	return float64(d), err == nil
}

func (r valueRange) contains(v float64) bool {
	return v >= r.min && v <= r.max || r.allowsZero && v == 0
}

// requirement returns the part of an error text that describes the range.
func (r valueRange) requirement() string {
	what := [...]string{"a number", "a number of bytes such as 512MiB or 4GiB,",
		"a duration such as 90s, 15m, 2h, 30d or 1y,", "a duration such as 500ms, 90s or 2h,", "a number"}[r.kind]
	text := fmt.Sprintf("must be %s from %s to %s", what, r.text(r.min), r.text(r.max))
	if r.allowsZero {
		text += ", or 0"
	}
	return text
}

func (r valueRange) text(v float64) string {
	switch r.kind {
	case unitBytes:
		return bytesText(int64(v))
	case unitDuration:
		return model.Duration(v).String()
	case unitGoDuration:
		return time.Duration(v).String()
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// RangeOf returns the min and the max value of a flag as text. ok is false if the flag has no range.
func RangeOf(flag string) (low, high string, ok bool) {
	r, ok := valueRanges[flag]
	return r.text(r.min), r.text(r.max), ok
}

// IsRanged reports whether a flag must have a range, because its value is a number, bytes or a duration.
func IsRanged(f *kingpin.FlagModel) bool {
	if _, ok := (valueRange{}).value(f.Value); ok {
		return true
	}
	if len(f.Default) == 0 {
		return false
	}
	_, err := model.ParseDuration(f.Default[0])
	return err == nil
}
