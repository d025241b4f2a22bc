package paged

import (
	"context"
	"errors"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// Filters of labels pages stand in the same table and partition, under a kind of their own, so that all of a partition are read by one short
// scan. The key is that of the page but for the kind, and the row is written in the same batch:
//
//	kind 0: labels pages         kind 9: filters
//	                             ┌ note: all have filters ┐   or ┌ note: some have none ┐
//	├ bits, first, version ───── ├ bits, first, version ─ page.AppendFilter
//	├ bits, first, version ───── ├ bits, first, version
//
// Where a write has few series of a partition, as most metrics have, their filters have no bits: they count pages, and the pages are opened.
//
// Every batch with labels pages has a note. It is about all labels pages of the partition: the first ones to be written get filters, and
// so do later ones unless pages without a note are there, which an earlier release has written. Readers go by filters only where there is
// the note that all have filters, and not the other one.

// filterChoice is whether labels pages of a segment get filters.
type filterChoice struct{ on bool }

// filterNote returns what writes the note of a batch that begins with a labels page.
func (t *tables) filterNote(filtered bool, labels *engine.Mutation) engine.Mutation {
	bits := format.BitsUnfiltered
	if filtered {
		bits = format.BitsFiltered
	}
	return engine.Mutation{
		Clustering: t.pageKey(format.KindFilter, 0, bits, noID, noID), Timestamp: labels.Timestamp, Expires: labels.Expires, Value: []byte{1},
	}
}

// notes returns a range of the notes of a partition.
func (t *tables) notes(partition engine.Key) engine.Range {
	from := engine.Key{engine.Int(format.KindFilter)}
	if t.isRaw() {
		from = append(from, engine.Int(0))
	}
	return engine.Range{
		Table: t.pages, Partition: partition, From: with(from, engine.Int(format.BitsUnfiltered)), To: with(from, engine.Int(format.BitsFiltered)),
	}
}

// filter returns what writes the filter of a labels page, of which some mutations write the labels.
func (p *packer) filter(labels *engine.Mutation, rows []int) engine.Mutation {
	m := engine.Mutation{Clustering: p.tables.filterKey(labels.Clustering), Timestamp: labels.Timestamp, Expires: labels.Expires}
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

// chooseFilters decides whether labels pages get filters. Where that can't be read, the series are left out: they stay rows.
func (r *Rows) chooseFilters(ctx context.Context, found []newSeries) (kept []newSeries, err error) {
	kept = found[:0]
	for _, n := range found {
		var err error
		if n.filtered, err = r.getFilters(ctx, n.tables, n.batch.Partition); err == nil {
			kept = append(kept, n)
		} else if !errors.Is(err, engine.ErrCorrupt) {
			return nil, err
		}
	}
	return kept, nil
}

// getFilters reports whether the labels pages of a partition that are written next get filters.
func (r *Rows) getFilters(ctx context.Context, t *tables, partition engine.Key) (bool, error) {
	if r.o.Shared {
		return true, nil // No release wrote pages without filters there.
	}
	name := segmentName(t.pages, partition, engine.Key{engine.Int(format.KindFilter)})
	if known := r.filtered.get(name); known != nil {
		return known.on, nil
	}
	note, err := r.noteOf(ctx, t, partition)
	if err != nil {
		return false, err
	}
	if note == noNote {
		there, err := r.haveKey(ctx, t, partition, engine.Key{engine.Int(format.KindLabels)})
		if err != nil || !there {
			return true, err
		}
		// Other writers' pages that are found have their note by now.
		if note, err = r.noteOf(ctx, t, partition); err != nil {
			return false, err
		}
	}
	on := note == format.BitsFiltered
	r.filtered.add(name, &filterChoice{on}, int64(len(name)+levelsBytes))
	return on, nil
}

// noNote stands where a partition has no note.
const noNote = 0

// noteOf returns the bits of the first note of a partition.
func (r *Rows) noteOf(ctx context.Context, t *tables, partition engine.Key) (bits int64, err error) {
	key := engine.Key{engine.Int(format.KindFilter)}
	for row, err := range r.eng.Scan(ctx, engine.Range{Table: t.pages, Partition: partition, From: key, To: key, KeysOnly: true, Limit: 1}) {
		if err != nil {
			return noNote, err
		}
		bits = min(row.Clustering[t.bits].Int, noNote)
	}
	return bits, nil
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
