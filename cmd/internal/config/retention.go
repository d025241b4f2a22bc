package config

import (
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/retention"
)

// Retention holds the retention by resolution. 0 keeps data forever.
type Retention struct {
	Raw, FiveMinutes, OneHour time.Duration
	// Tenants and Classes are the retentions set by the retention file.
	Tenants map[string]retention.Durations
	Classes []retention.Class
	// FromFile is set if a retention file was read.
	FromFile bool
}

// String describes the retention for messages.
func (r Retention) String() string {
	words := describeKeep(retention.Durations{Raw: r.Raw, FiveMinutes: r.FiveMinutes, OneHour: r.OneHour})
	for _, name := range sortedKeys(r.Tenants) {
		words += fmt.Sprintf("; tenant %q: %s", name, describeKeep(r.Tenants[name]))
	}
	for _, c := range r.Classes {
		words += fmt.Sprintf("; class %q: %s", c.Name, describeKeep(c.Durations))
	}
	return words
}

func describeKeep(k retention.Durations) string {
	if k.Raw == 0 {
		return "forever"
	}
	words := func(d time.Duration) string {
		if d == 0 {
			return "forever"
		}
		return model.Duration(d).String()
	}
	return "raw " + words(k.Raw) + ", 5m " + words(k.FiveMinutes) + ", 1h " + words(k.OneHour)
}

// SetOptions sets the retention in the options of a store.
func (r Retention) SetOptions(o *storage.Options) {
	o.Retention, o.Retention5m, o.Retention1h = r.Raw, r.FiveMinutes, r.OneHour
	o.TenantRetention, o.Classes = r.Tenants, r.Classes
}

// KeptOf returns the retention of a tenant's series.
func (r Retention) KeptOf(tenant string) importer.RetentionPolicy {
	k := importer.RetentionPolicy{
		Default: retention.Durations{Raw: r.Raw, FiveMinutes: r.FiveMinutes, OneHour: r.OneHour},
		Classes: r.Classes,
	}
	if own, ok := r.Tenants[tenant]; ok {
		k.Default = own
	}
	return k
}

// IsForEver reports whether no data ever expires.
func (r Retention) IsForEver() bool {
	return r.Raw == 0 && r.FiveMinutes == 0 && r.OneHour == 0 && len(r.Tenants) == 0 && len(r.Classes) == 0
}

// Default retention of rollups. It is longer if raw samples are kept longer.
const (
	year                 = 365 * 24 * time.Hour
	fiveMinutesRetention = year
	oneHourRetention     = 5 * year
)

// retentionText holds the unparsed values of the flags.
type retentionText struct{ raw, fiveMinutes, oneHour, file string }

func retentionFlags(cmd *kingpin.CmdClause, t *retentionText) {
	cmd.Flag(
		"retention.raw", "Retention of raw samples, such as 30d or 1y. 0 keeps them forever.",
	).Default("30d").StringVar(&t.raw)
	cmd.Flag(
		"retention.5m", "Retention of 5m rollups. Default: 1y, or the retention of raw samples if that is longer.",
	).StringVar(&t.fiveMinutes)
	cmd.Flag(
		"retention.1h", "Retention of 1h rollups. Default: 5y, or the retention of 5m rollups if that is longer.",
	).StringVar(&t.oneHour)
	cmd.Flag(
		"retention.file",
		"YAML file with retentions per tenant and per class of series. It takes effect at a restart. Default: none.",
	).StringVar(&t.file)
}

// RetentionFlags declares only the retention flags, for commands other than serve. The returned function parses them.
func RetentionFlags(cmd *kingpin.CmdClause) func() (Retention, error) {
	var t retentionText
	retentionFlags(cmd, &t)
	return t.parse
}

func (t *retentionText) parse() (r Retention, err error) {
	if err := parseDuration("retention.raw", t.raw, true, &r.Raw); err != nil {
		return r, err
	}
	if r.Raw > 0 && r.Raw < 24*time.Hour {
		return r, flagError("retention.raw", t.raw, "must be at least 1d, or 0 to keep samples forever")
	}
	if r.FiveMinutes, err = parseRollups("retention.5m", t.fiveMinutes, fiveMinutesRetention,
		"raw samples", r.Raw); err != nil {
		return r, err
	}
	r.OneHour, err = parseRollups("retention.1h", t.oneHour, oneHourRetention, "5m rollups", r.FiveMinutes)
	if err != nil ||
		t.file == "" {
		return r, err
	}
	r.FromFile = true
	return r, r.loadRetentionFile(t.file)
}

// parseRollups parses the retention of rollups. It must be at least as long as kept, the retention of the data
// that rollups are computed from.
func parseRollups(flag, text string, usual time.Duration, of string, kept time.Duration) (d time.Duration, err error) {
	if text == "" {
		if kept == 0 {
			return 0, nil
		}
		return max(usual, kept), nil
	}
	if err := parseDuration(flag, text, true, &d); err != nil {
		return 0, err
	}
	switch {
	case kept == 0 && d != 0:
		return 0, flagError(flag, text, "must be 0, because "+of+" are kept forever")
	case d != 0 && d < kept:
		return 0, flagError(
			flag, text, "must not be shorter than the retention of "+of+", "+model.Duration(kept).String(),
		)
	}
	return d, nil
}
