package importer

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// RetentionPolicy is the retention of a tenant's series at a destination.
type RetentionPolicy struct {
	// Default is the retention of series without a class.
	Default retention.Durations
	// Classes are in the order of the retention file. The first class that matches a series applies.
	Classes []retention.Class
}

// KeepOf returns the retention of a series and the name of its class, "" if it has none.
func (r *RetentionPolicy) KeepOf(ls labels.Labels) (retention.Durations, string) {
	for i := range r.Classes {
		if c := &r.Classes[i]; c.Matches(ls) {
			return c.Durations, c.Name
		}
	}
	return r.Default, ""
}

// PastSamples counts the samples of a class that are older than the retention of raw samples.
type PastSamples struct {
	// Class is the name of the class, "" for series without a class.
	Class string
	retention.Durations
	// Samples counts the samples of the class that are older than its retention of raw samples. RollupsOnly counts
	// samples that an import stores only as rollups; it includes HoursOnly, which counts samples stored only as 1h
	// rollups. Expired counts samples that an import doesn't store.
	Samples, RollupsOnly, HoursOnly, Expired int
}

// CountPast counts the samples older than the retention of raw samples, by class, in the order of list.
func (r *RetentionPolicy) CountPast(list []storage.ImportedSeries, now time.Time) (all []PastSamples) {
	for i := range list {
		keep, class := r.KeepOf(list[i].Labels)
		p := PastSamples{Class: class, Durations: keep}
		oldest := retentionBoundary(now, keep.Raw)
		eachTime(list[i].Samples, func(t int64) {
			if t >= oldest {
				return
			}
			p.Samples++
			switch finest, stored := keep.FinestImported(t, now); {
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
			all = addPastSamples(all, p)
		}
	}
	return all
}

// addPastSamples adds p to the entry of its class.
func addPastSamples(all []PastSamples, p PastSamples) []PastSamples {
	i := slices.IndexFunc(all, func(have PastSamples) bool { return have.Class == p.Class })
	if i < 0 {
		return append(all, p)
	}
	all[i].Samples += p.Samples
	all[i].RollupsOnly += p.RollupsOnly
	all[i].HoursOnly += p.HoursOnly
	all[i].Expired += p.Expired
	return all
}
