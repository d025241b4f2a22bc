package paged

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// Filters of labels pages stand in the same table and partition, under a kind of their own, so that all of a partition are read by one short
// scan. Each labels page has one. Its key is that of the page but for the kind, and the row is written in the same batch:
//
//	kind 0: labels pages         kind 9: filters
//	├ bits, first, version ───── ├ bits, first, version ─ page.AppendFilter
//	├ bits, first, version ───── ├ bits, first, version
//
// Where a write has few series of a partition, as most metrics have, their filters have no bits: they count pages, and the pages are opened.

// filter returns what writes the filter of a labels page, of which some mutations write the labels.
func (p *packer) filter(labels *engine.Mutation, rows []int) engine.Mutation {
	m := engine.Mutation{Clustering: p.tables.filterKey(labels.Clustering), Timestamp: labels.Timestamp}
	if !p.many {
		m.Value = page.AppendOpenFilter(nil, len(rows))
		return m
	}
	values := make([][]byte, len(rows))
	for i, row := range rows {
		values[i] = p.value(row)
	}
	m.Value = page.AppendFilter(nil, values)
	return m
}

// filterKey returns the key of the filter of a labels page with a key.
func (t *tables) filterKey(labels engine.Key) engine.Key {
	key := slices.Clone(labels)
	key[0] = engine.Int(format.KindFilter)
	return key
}

// haveKey reports whether a partition has rows of pages whose keys begin with key.
func (r *Rows) haveKey(ctx context.Context, t *tables, partition, key engine.Key) (there bool, err error) {
	for _, err := range r.eng.Scan(ctx, engine.Range{Table: t.pages, Partition: partition, From: key, To: key, KeysOnly: true, Limit: 1}) {
		if err != nil {
			return false, err
		}
		there = true
	}
	return there, nil
}
