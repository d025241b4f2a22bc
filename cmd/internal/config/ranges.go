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
	counted  valueKind = iota // such as 12
	sized                     // such as 512MiB
	lasting                   // such as 90s or 2d
	brief                     // in Go's syntax, such as 90s or 48h
	fraction                  // such as 0.5
)

// valueRange is the range of a flag's value: a count, a number of bytes, or a number of nanoseconds.
type valueRange struct {
	kind     valueKind
	min, max float64
	// zero is set if 0 is also valid. It usually means a default or no limit.
	zero bool
}

// Upper limits that exceed every practical need but don't cause overflows.
const (
	maxBytes   = 1 << 50
	maxNumber  = 1e12
	maxLasting = year
	maxKept    = 100 * year
)

func counts(low, high float64) valueRange { return valueRange{kind: counted, min: low, max: high} }
func bytesFrom(low int64) valueRange {
	return valueRange{kind: sized, min: float64(low), max: maxBytes}
}
func lasts(low, high time.Duration) valueRange {
	return valueRange{kind: lasting, min: float64(low), max: float64(high)}
}
func brieflyLasts(low, high time.Duration) valueRange {
	return valueRange{kind: brief, min: float64(low), max: float64(high)}
}
func fractions(high float64) valueRange { return valueRange{kind: fraction, max: high} }
func (r valueRange) orZero() valueRange { r.zero = true; return r }

// ranges contains the ranges of all flags whose values are numbers, bytes or durations, by name. A flag that multiple
// commands have has the same range in each.
var ranges = map[string]valueRange{
	"storage.partitions": counts(1, 4096).orZero(), "storage.slot": lasts(time.Hour, 24*time.Hour),
	"storage.settle":   lasts(0, 24*time.Hour),
	"memory.max-bytes": bytesFrom(minMemory), "storage.head-bytes": bytesFrom(minHead),
	"storage.cache-bytes": {kind: sized, min: minCache, max: maxCache},
	"retention.raw":       lasts(0, maxKept), "retention.5m": lasts(0, maxKept), "retention.1h": lasts(0, maxKept),
	"query.timeout": lasts(time.Millisecond, maxLasting), "query.lookback-delta": lasts(time.Second, maxLasting),
	"query.log-slower-than": lasts(0, maxLasting),
	"query.max-samples":     counts(1, maxNumber), "query.max-concurrency": counts(1, 10_000),
	"query.max-bytes": bytesFrom(minQuery), "query.unread-bytes": bytesFrom(minQuery),
	"ha.failover-timeout": lasts(time.Second, 10*time.Minute), "ha.held-bytes": bytesFrom(16 << 20),
	"ha.max-clusters":          counts(1, 1_000_000),
	"rule.evaluation-interval": lasts(time.Second, maxLasting),
	"backup.every":             lasts(time.Minute, maxLasting),
	"backup.keep":              counts(0, 1_000_000), "backup.keep-hourly": counts(0, 1_000_000),
	"backup.keep-daily": counts(0, 1_000_000), "backup.keep-weekly": counts(0, 1_000_000),
	"cassandra.timeout": brieflyLasts(100*time.Millisecond, 10*time.Minute),

	// Flags of commands other than serve.
	"keep": counts(0, 1_000_000), "keep-hourly": counts(0, 1_000_000), "keep-daily": counts(0, 1_000_000),
	"keep-weekly": counts(0, 1_000_000),
	"slot":        lasts(time.Hour, 24*time.Hour).orZero(), "window": lasts(24*time.Hour, maxLasting).orZero(),
	"partitions":       counts(1, 4096).orZero(),
	"kairosdb.timeout": brieflyLasts(100*time.Millisecond, 10*time.Minute), "kairosdb.readers": counts(1, 128),
	"kairosdb.batch-bytes": {kind: sized, min: 1 << 10, max: 1 << 30},
	"piece":                lasts(time.Minute, 24*time.Hour), "timeout": brieflyLasts(time.Millisecond, time.Hour),
	"senders": counts(1, 10_000), "request-samples": counts(1, 1_000_000), "retry-for": brieflyLasts(0, 24*time.Hour),
	"series":   counts(1, 100_000_000),
	"interval": brieflyLasts(time.Millisecond, 24*time.Hour), "duration": brieflyLasts(time.Millisecond, maxKept),
	"speed": fractions(maxNumber), "rate": fractions(maxNumber),
	"churn": fractions(60), "histograms": counts(0, 1000), "odd": counts(0, 1000), "late-percent": counts(0, 100),
	"late-steps":   counts(0, 1_000_000),
	"extra-labels": counts(0, 1000), "pid": counts(0, 1<<22),
}

// CheckRanges returns an error if the value of a flag is outside of its range. It names the first such flag and the
// range.
func CheckRanges(flags []*kingpin.FlagModel) error {
	for _, f := range flags {
		r, ok := ranges[f.Name]
		if !ok {
			continue
		}
		if v, ok := r.value(f.Value); ok && !r.has(v) {
			return flagError(f.Name, f.Value.String(), r.mustBe())
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
		r, ok := ranges[f.Model().Name]
		if !ok {
			continue
		}
		set := f.Model().Value
		err := set.Set(*e.Value)
		v, read := r.value(set)
		if typed, err := strconv.ParseFloat(*e.Value, 64); err == nil && r.kind == counted {
			v = typed
		}
		if unreadable := r.kind == lasting && !read && *e.Value != ""; err != nil || unreadable || read && !r.has(v) {
			return flagError(f.Model().Name, *e.Value, r.mustBe())
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
	if r.kind != lasting || v.String() == "" {
		return 0, false
	}
	d, err := model.ParseDuration(v.String())
	return float64(d), err == nil
}

func (r valueRange) has(v float64) bool { return v >= r.min && v <= r.max || r.zero && v == 0 }

// mustBe returns the part of an error text that describes the range.
func (r valueRange) mustBe() string {
	what := [...]string{"a number", "a number of bytes such as 512MiB or 4GiB,",
		"a duration such as 90s, 15m, 2h, 30d or 1y,", "a duration such as 500ms, 90s or 2h,", "a number"}[r.kind]
	text := fmt.Sprintf("must be %s from %s to %s", what, r.text(r.min), r.text(r.max))
	if r.zero {
		text += ", or 0"
	}
	return text
}

func (r valueRange) text(v float64) string {
	switch r.kind {
	case sized:
		return bytesText(int64(v))
	case lasting:
		return model.Duration(v).String()
	case brief:
		return time.Duration(v).String()
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// RangeOf returns the min and the max value of a flag as text. ok is false if the flag has no range.
func RangeOf(flag string) (low, high string, ok bool) {
	r, ok := ranges[flag]
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
