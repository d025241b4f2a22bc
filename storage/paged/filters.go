package paged

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// Filters of labels pages are stored in the table and partition of the pages under a kind of their own, so that one
// short scan reads all filters of a partition. Each labels page has a filter. The filter has the key of the page,
// except for the kind, and is written in the same batch as the page:
//
//	kind 0: labels pages         kind 9: filters
//	├ bits, first, version ───── ├ bits, first, version ─ page.AppendFilter
//	├ bits, first, version ───── ├ bits, first, version
//
// If a write has few series of a partition, which is the case for most metrics, the filters of its labels pages contain
// only the number of entries, and readers must open these pages.

// filterMutation returns the mutation that writes the filter of a labels page. rows are the mutations with its labels.
func (p *packer) filterMutation(labels *engine.Mutation, rows []int) engine.Mutation {
	m := engine.Mutation{Clustering: p.tables.filterKey(labels.Clustering), Timestamp: labels.Timestamp}
	if !p.many {
		m.Value = page.AppendOpenFilter(nil, len(rows))
		return m
	}
	values := make([][]byte, len(rows))
	for i, row := range rows {
		values[i] = p.valueOf(row)
	}
	m.Value = page.AppendFilter(nil, values)
	return m
}

// filterKey returns the key of the filter of the labels page with this key.
func (t *tables) filterKey(labels engine.Key) engine.Key {
	key := slices.Clone(labels)
	key[0] = engine.Int(format.KindFilter)
	return key
}

// haveKey reports whether a partition has page rows whose keys begin with key.
func (r *Rows) haveKey(ctx context.Context, t *tables, partition, key engine.Key) (there bool, err error) {
	for _, err := range r.eng.Scan(ctx, engine.Range{
		Table: t.pages, Partition: partition, From: key, To: key, KeysOnly: true, Limit: 1,
	}) {
		if err != nil {
			return false, err
		}
		there = true
	}
	return there, nil
}
