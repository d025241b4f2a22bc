package paged

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// LabelsQuery identifies the labels rows of a partition whose series match a selector.
type LabelsQuery struct {
	Table     *engine.Table // raw, r5m or r1h
	Partition engine.Key
	Selector  *page.Selector
	// BadFilter is called with an engine.ErrCorrupt for each unreadable filter. Its page is then read, so no series is
	// missed.
	BadFilter func(error)
}

// Candidates are the labels pages of a partition that may have wanted series, according to their filters.
type Candidates struct {
	LabelsQuery
	// AllPages and AllSeries count the labels pages of the partition and their entries, without the entries of pages
	// with unreadable filters.
	AllPages, AllSeries int

	r     *Rows
	t     *tables
	pages []candidate // in the order of keys
	found locating
}

// candidate identifies a labels page.
type candidate struct {
	bits           int
	first, version string
}

// Pages returns the number of pages that Rows opens.
func (c *Candidates) Pages() int { return len(c.pages) }

// Candidates reads the filters of a partition. It returns nil if all labels rows must be read by Scan, because filters
// are unreadable, or because there are pages without filters.
func (r *Rows) Candidates(ctx context.Context, query LabelsQuery) (*Candidates, error) {
	t := tablesOf(query.Table)
	if t == nil {
		return nil, nil
	}
	c := &Candidates{LabelsQuery: query, r: r, t: t}
	filters := engine.Key{engine.Int(format.KindFilter)}
	found := false
	for row, err := range r.eng.Scan(ctx, engine.Range{
		Table: t.pages, Partition: query.Partition, From: filters, To: filters,
	}) {
		switch {
		case errors.Is(err, engine.ErrCorrupt):
			query.BadFilter(filtersDamaged(t, query.Partition, err))
			return nil, nil
		case err != nil:
			return nil, err
		}
		c.addFilterRow(row)
		found = true
	}
	if found {
		return c, nil
	}
	if there, err := r.haveKey(ctx, t, query.Partition, engine.Key{engine.Int(format.KindLabels)}); err != nil ||
		there {
		if errors.Is(err, engine.ErrCorrupt) {
			err = nil // Scan reports it.
		}
		return nil, err
	}
	return c, nil
}

// filtersDamaged returns an engine.ErrCorrupt that names the filters of a partition.
func filtersDamaged(t *tables, partition engine.Key, err error) error {
	return fmt.Errorf("paged: filters in table %s, partition %s: %w",
		t.pages, describeKey(t.pages.Partition, partition), err)
}

// addFilterRow adds the labels page of a filter row to the candidates, unless the filter excludes all its series.
func (c *Candidates) addFilterRow(row engine.Row) {
	k := row.Clustering
	c.AllPages++
	f, err := page.ParseFilter(row.Value)
	if err != nil {
		p := c.t.newHeldPage(row, nil)
		c.BadFilter(damaged(c.t, c.Partition, p, err))
	} else if c.AllSeries += f.Entries; !c.Selector.MayMatch(&f) {
		c.found.endPage(k[pageVersion].Text)
		return
	}
	c.pages = append(c.pages, candidate{
		int(k[c.t.bits].Int), strings.Clone(k[c.t.first].Text), strings.Clone(k[pageVersion].Text),
	})
}

// Located returns the positions of the series that Rows has returned, for Wanted.
func (c *Candidates) Located() *Located { return c.found.located() }

// LabelsRow is a labels row with the id of its series.
type LabelsRow struct {
	ID    string
	Value []byte
}

// Rows returns the matching labels rows in the order of their ids, each once, and possibly rows with an unreadable
// value. It includes rows that aren't in pages. charge is called with the size of the rows in bytes; its error ends the
// search. damage, if not nil, is called as Range.Damaged is by Scan. Rows may be called only once.
func (c *Candidates) Rows(
	ctx context.Context, charge func(bytes int) error, damage func(engine.Damage),
) ([]LabelsRow, error) {
	f := finder{c: c, charge: charge}
	kind := engine.Key{engine.Int(format.KindLabels)}
	f.scan = scan{
		r: c.r, ctx: ctx, tables: c.t,
		rows: &engine.Range{Table: c.Table, Partition: c.Partition, From: kind, To: kind, Damaged: damage},
	}
	// Pages must be read before rows, see section "Rows supersede entries" of the package documentation.
	if err := f.readPages(); err != nil {
		return nil, err
	}
	if err := f.readRows(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(f.found, func(a, b LabelsRow) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(f.found, func(a, b LabelsRow) bool { return a.ID == b.ID }), nil
}

// finder reads the labels rows of candidates.
type finder struct {
	scan

	c       *Candidates
	charge  func(bytes int) error
	found   []LabelsRow
	next    int        // index in c.pages
	nextKey engine.Key // its key; nil: not computed yet
	x       identifier
	entries []byte
	value   []byte
}

// readPages reads the labels pages that may match.
func (f *finder) readPages() error {
	if len(f.c.pages) == 0 {
		return nil
	}
	all := f.c.pages
	pages := engine.Range{
		Table: f.pages, Partition: f.c.Partition, Damaged: f.pagesDamaged(), From: f.keyOf(&all[0]),
		To: f.keyOf(&all[len(all)-1]),
	}
	for row, err := range f.passingOver(pages, passing{
		wanted: f.isNext, after: f.afterPage, most: passFilteredPages, again: func(_, next engine.Key) engine.Range {
			pages.From = next
			return pages
		},
	}) {
		if err != nil {
			return err
		}
		if err := f.addPage(row); err != nil {
			return err
		}
	}
	return nil
}

// passFilteredPages is the number of consecutive non-candidate labels pages that a scan skips before it seeks: about
// one Pebble block.
const passFilteredPages = 8

func (f *finder) keyOf(c *candidate) engine.Key {
	return f.pageKey(format.KindLabels, 0, c.bits, c.first, c.version)
}

// isNext reports whether a candidate has this key. Candidates before the key no longer exist and are skipped.
func (f *finder) isNext(key engine.Key) bool {
	for f.next < len(f.c.pages) {
		if f.nextKey == nil {
			f.nextKey = f.keyOf(&f.c.pages[f.next])
		}
		order := engine.Compare(f.nextKey, key)
		if order > 0 {
			return false
		}
		f.next++
		f.nextKey = nil
		if order == 0 {
			return true
		}
	}
	return false
}

// afterPage returns the key of the next candidate.
func (f *finder) afterPage(engine.Key) engine.Key {
	if f.next == len(f.c.pages) {
		return nil
	}
	return f.keyOf(&f.c.pages[f.next])
}

// addPage adds the matching entries of a labels page.
func (f *finder) addPage(row engine.Row) error {
	before := len(f.found)
	p, err := parsePage(row.Value)
	if err == nil && p.Head().Kind != page.Labels {
		err = fmt.Errorf("%w: a page of kind %d, expected kind %d", engine.ErrCorrupt, p.Head().Kind, page.Labels)
	}
	if err == nil {
		err = f.addMatches(row.Clustering, p)
	}
	if err != nil {
		f.c.found.entries = f.c.found.entries[:0]
		return f.unreadable(f.newHeldPage(row, nil), err)
	}
	f.c.found.endPage(strings.Clone(row.Clustering[pageVersion].Text))
	return f.chargeFrom(before)
}

// chargeFrom calls charge with the size of the found rows whose index is at least first.
func (f *finder) chargeFrom(first int) error {
	n := 0
	for _, row := range f.found[first:] {
		n += len(row.ID) + len(row.Value)
	}
	return f.charge(n)
}

func (f *finder) addMatches(key engine.Key, p *page.Page) (err error) {
	f.entries = f.c.Selector.AppendEntries(f.entries[:0], p)
	for _, i := range f.entries {
		if f.value, err = p.AppendValue(f.value[:0], int(i)); err != nil {
			return fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
		}
		id, err := f.x.id(f.value, metricOf(f.c.Partition))
		if err != nil {
			return fmt.Errorf("%w: entry %d: %w", engine.ErrCorrupt, i, err)
		}
		if first := key[f.first].Text; bucketFirst(string(id[:]), int(key[f.bits].Int)) != first {
			return fmt.Errorf("%w: series %x isn't in its bucket", engine.ErrCorrupt, id)
		}
		found := LabelsRow{string(id[:]), bytes.Clone(f.value)}
		f.found = append(f.found, found)
		f.c.found.entries = append(f.c.found.entries, locatedEntry{found.ID, i})
	}
	return nil
}

// readRows reads the labels rows that aren't in pages.
func (f *finder) readRows() error {
	for row, err := range f.r.eng.Scan(f.ctx, *f.rows) {
		if err != nil {
			return err
		}
		if f.c.Selector.MatchesRow(row.Value) {
			f.found = append(f.found, LabelsRow{strings.Clone(row.Clustering[f.series].Text), bytes.Clone(row.Value)})
			if err := f.chargeFrom(len(f.found) - 1); err != nil {
				return err
			}
		}
	}
	return nil
}
