package importer

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Kept is how long a destination keeps the series of a tenant.
type Kept struct {
	// Default is the retention of series without a class.
	Default retention.Keep
	// Classes are in the order of the retention file: the first one that matches a series applies.
	Classes []retention.Class
}

// Of returns the retention of a series, and the name of its class; "": it has none.
func (k *Kept) Of(ls labels.Labels) (retention.Keep, string) {
	for i := range k.Classes {
		if c := &k.Classes[i]; c.Matches(ls) {
			return c.Keep, c.Name
		}
	}
	return k.Default, ""
}

// Past are the samples past the retention of raw samples of a class.
type Past struct {
	// Class is the name of the class; "": the series have none.
	Class string
	retention.Keep
	// Samples counts them. Of RollupsOnly of these an import stores only rollups, of HoursOnly of those only 1h rollups, and nothing of Expired.
	Samples, RollupsOnly, HoursOnly, Expired int
}

// Past returns the samples past the retention of raw samples, by class, in the order of the series.
func (k *Kept) Past(list []storage.ImportedSeries, now time.Time) (all []Past) {
	for i := range list {
		keep, class := k.Of(list[i].Labels)
		p := Past{Class: class, Keep: keep}
		oldest := boundary(now, keep.Raw)
		eachTime(list[i].Samples, func(t int64) {
			if t >= oldest {
				return
			}
			p.Samples++
			switch finest, stored := keep.Imports(t, now); {
			case !stored:
				p.Expired++
			case finest == rollup.OneHour:
				p.HoursOnly++
				fallthrough
			case finest == rollup.FiveMinutes:
				p.RollupsOnly++
			}
		})
		if p.Samples > 0 {
			all = addPast(all, p)
		}
	}
	return all
}

// addPast adds the samples of a class to those of the same class.
func addPast(all []Past, p Past) []Past {
	i := slices.IndexFunc(all, func(have Past) bool { return have.Class == p.Class })
	if i < 0 {
		return append(all, p)
	}
	all[i].Samples += p.Samples
	all[i].RollupsOnly += p.RollupsOnly
	all[i].HoursOnly += p.HoursOnly
	all[i].Expired += p.Expired
	return all
}
