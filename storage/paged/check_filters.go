package paged

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// CheckFilters verifies the filters of a partition of raw, r5m or r1h: each labels page must have a filter with all of
// its labels, and each filter must belong to a page. It calls report for each violation. It skips unreadable labels
// pages, which Scan reports.
func (r *Rows) CheckFilters(ctx context.Context, table *engine.Table, partition engine.Key, report func(error)) error {
	t := tablesOf(table)
	if t == nil {
		return nil
	}
	// Read filters first: pages that are written concurrently have newer filters, which aren't checked.
	x := filterCheck{r: r, t: t, partition: partition, filters: map[candidate][]byte{}}
	err := x.readRows(ctx)
	if errors.Is(err, engine.ErrCorrupt) {
		report(filtersDamaged(t, partition, err))
		return nil
	}
	if err != nil {
		return err
	}
	for row, err := range r.eng.Scan(ctx, x.rangeOf(format.KindLabels)) {
		switch {
		case errors.Is(err, engine.ErrCorrupt):
			return nil
		case err != nil:
			return err
		}
		if err := x.checkPage(ctx, row); err != nil {
			report(damaged(t, partition, t.newHeldPage(row, nil), err))
		}
	}
	for key := range x.filters {
		filter := t.pageKey(format.KindFilter, 0, key.bits, key.first, key.version)
		if there, err := r.haveKey(ctx, t, partition, filter); err != nil || !there {
			return err // The window has been dropped concurrently.
		}
		p := &heldPage{kind: format.KindFilter, bits: key.bits, first: key.first, version: key.version}
		report(damaged(t, partition, p, errors.New("a filter without a labels page")))
	}
	return nil
}

type filterCheck struct {
	r         *Rows
	t         *tables
	partition engine.Key
	filters   map[candidate][]byte
}

func (x *filterCheck) rangeOf(kind int64) engine.Range {
	key := engine.Key{engine.Int(kind)}
	return engine.Range{Table: x.t.pages, Partition: x.partition, From: key, To: key}
}

func (x *filterCheck) readRows(ctx context.Context) error {
	for row, err := range x.r.eng.Scan(ctx, x.rangeOf(format.KindFilter)) {
		if err != nil {
			return err
		}
		x.filters[x.keyOf(row.Clustering)] = append([]byte(nil), row.Value...)
	}
	return nil
}

func (x *filterCheck) keyOf(k engine.Key) candidate {
	return candidate{int(k[x.t.bits].Int), strings.Clone(k[x.t.first].Text), strings.Clone(k[pageVersion].Text)}
}

// checkPage returns an error if a labels page has no filter, or the filter of another page.
func (x *filterCheck) checkPage(ctx context.Context, row engine.Row) error {
	key := x.keyOf(row.Clustering)
	value, there := x.filters[key]
	delete(x.filters, key)
	if !there {
		if there, err := x.r.haveKey(ctx, x.t, x.partition, x.t.filterKey(row.Clustering)); there || err != nil {
			return err
		}
		return errors.New("a labels page without a filter")
	}
	p, err := page.Parse(row.Value)
	if err != nil {
		return nil
	}
	f, err := page.ParseFilter(value)
	if err == nil {
		err = f.Check(p)
	}
	if err != nil {
		return fmt.Errorf("its filter: %w", err)
	}
	return nil
}
