package storage

import (
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// addExemplars adds the rows of a series' exemplars, except exemplars that are already sealed. The caller adds the
// series' labels.
func (x *slotSealer) addExemplars(c *collectedSeries, sealedBefore bool) error {
	var list []format.Exemplar
	for st := range c.chunks.All() {
		list = append(list, st.Exemplars()...)
	}
	if len(list) == 0 {
		return nil
	}
	list = format.SelectExemplars(list)
	named := x.deletesOf(c.series).IDs()
	if sealedBefore {
		have, err := x.sealedExemplars(c.series, &named)
		if err != nil {
			return err
		}
		list = missingExemplars(list, have)
	}
	at := x.into[rollup.Raw]
	for len(list) > 0 {
		n, bytes := 0, 0
		for n < len(list) && bytes < format.MaxExemplarRow {
			bytes += len(list[n].Data)
			n++
		}
		value := format.AppendRawChunk(nil, format.RawChunk{Exempt: named, Data: format.AppendExemplars(nil, list[:n])})
		x.addRow(
			c, rollup.Raw, at.window, at.end*1000,
			format.ExemplarsKey(c.series.IDText(), at.start, format.RowVersion(value)), value,
		)
		x.stats.Exemplars += n
		list = list[n:]
	}
	return nil
}

// sealedExemplars returns a series' sealed exemplars in the slot, except deleted ones. It adds the deletes that the
// exemplars' rows name to named.
func (x *slotSealer) sealedExemplars(s *Series, named *format.TombstoneIDs) (have []format.Exemplar, err error) {
	if err := x.readShardsOf(s); err != nil {
		return nil, err
	}
	err = x.eachExemplars(s, x.shards, func(row engine.Row) error {
		// A corrupt row is skipped, because queries report it. New exemplars are written to other rows.
		list, c, _ := format.DecodeRawExemplars(slices.Clone(row.Value), x.deletesOf(s))
		have, *named = append(have, list...), named.Union(c.Exempt)
		return nil
	})
	return have, err
}

// missingExemplars returns the exemplars in list that aren't in have. It omits exemplars beyond the limit that
// SelectExemplars applies to both lists together.
func missingExemplars(list, have []format.Exemplar) (missing []format.Exemplar) {
	all := format.SelectExemplars(slices.Concat(list, have))
	slices.SortFunc(have, format.Exemplar.Compare)
	for _, e := range list {
		_, kept := slices.BinarySearchFunc(all, e, format.Exemplar.Compare)
		if _, known := slices.BinarySearchFunc(have, e, format.Exemplar.Compare); kept && !known {
			missing = append(missing, e)
		}
	}
	return missing
}
