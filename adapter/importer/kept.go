package importer

import (
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
)

// Kept is how long a destination keeps the series of a tenant.
type Kept struct {
	// Default is the retention of series without a class.
	Default storage.Keep
	// Classes are in the order of the retention file: the first one that matches a series applies.
	Classes []storage.Class
}

// Of returns the retention of a series, and the name of its class; "": it has none.
func (k *Kept) Of(ls labels.Labels) (storage.Keep, string) {
	for i := range k.Classes {
		if c := &k.Classes[i]; c.Matches(ls) {
			return c.Keep, c.Name
		}
	}
	return k.Default, ""
}

// PastRaw returns the first series that has samples past the retention of its raw samples, with that retention and its class. ok is false if
// there is none.
func (k *Kept) PastRaw(list []storage.ImportedSeries, now time.Time) (raw time.Duration, class string, ok bool) {
	for i := range list {
		keep, class := k.Of(list[i].Labels)
		if oldest := boundary(now, keep.Raw); olderThan(&list[i], oldest) > 0 {
			return keep.Raw, class, true
		}
	}
	return 0, "", false
}
