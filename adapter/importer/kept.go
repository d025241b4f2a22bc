package importer

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Kept is the retention of a tenant's series at a destination.
type Kept struct {
	// Default is the retention of series without a class.
	Default retention.Keep
	// Classes are in the order of the retention file. The first class that matches a series applies.
	Classes []retention.Class
}

// Of returns the retention of a series and the name of its class, "" if it has none.
func (k *Kept) Of(ls labels.Labels) (retention.Keep, string) {
	for i := range k.Classes {
		if c := &k.Classes[i]; c.Matches(ls) {
			return c.Keep, c.Name
		}
	}
	return k.Default, ""
}

// Past counts the samples of a class that are older than the retention of raw samples.
type Past struct {
	// Class is the name of the class, "" for series without a class.
	Class string
	retention.Keep
	// Samples counts these samples. RollupsOnly counts samples that an import stores only as rollups; it includes
	// HoursOnly, which counts samples stored only as 1h rollups. Expired counts samples that an import doesn't store.
	Samples, RollupsOnly, HoursOnly, Expired int
}

// Past counts the samples older than the retention of raw samples, by class, in the order of list.
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

// addPast adds p to the entry of its class.
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
