package paged

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// heldPage is a page that was read from a partition.
type heldPage struct {
	kind, start    int64
	bits           int
	first, version string
	value          []byte // nil if the page was already open

	*openPage      // nil if the page isn't open
	bad       bool // an entry is unreadable and was reported
	// located contains the positions of the wanted series in its labels page, if known.
	located *located
}

// openPage is a parsed page with the ids of its labels page. It is immutable.
type openPage struct {
	kind page.Kind
	at   []byte // positions of the entries in ids; nil: 0, 1, 2, …
	ids  ids
	// order contains the entries in the order of their ids.
	order []byte
	page  *page.Page
	// values and, for raw chunks, versions belong to a page that this process has just written; page is then nil.
	values   [][]byte
	versions []string
	// some is set if only the entries in order are available: see Located.
	some bool
}

// newOpenPage returns a page of n entries at these positions of a labels page.
func newOpenPage(kind page.Kind, at []byte, of ids, n int) *openPage {
	return &openPage{kind: kind, at: at, ids: of, order: of.orderEntries(at, n)}
}

// len returns the number of entries.
func (p *openPage) len() int { return len(p.order) }

// search returns the index in order, starting at from, of the first entry with an id of at least id.
func (p *openPage) search(from int, id string) int {
	if from < len(p.order) && p.id(int(p.order[from])) >= id {
		return from
	}
	return from + sort.Search(len(p.order)-from, func(i int) bool { return p.id(int(p.order[from+i])) >= id })
}

// appendPart appends the value of an entry, or at least the requested part of it.
func (p *openPage) appendPart(dst []byte, i int, part *page.Part) ([]byte, error) {
	if p.page == nil {
		return append(dst, p.values[i]...), nil
	}
	return p.page.AppendPart(dst, i, part)
}

// appendVersion appends the version of an entry that is a raw chunk with this value.
func (p *openPage) appendVersion(dst []byte, i int, value []byte) []byte {
	if p.page == nil {
		return append(dst, p.versions[i]...)
	}
	version := hashOf(value)
	return append(dst, version[:]...)
}

// newHeldPage copies a row of a table of pages, without its value if open isn't nil.
func (t *tables) newHeldPage(row engine.Row, open *openPage) *heldPage {
	k := row.Clustering
	p := &heldPage{
		kind: k[0].Int, start: k[t.pageStart].Int, bits: int(k[t.bits].Int),
		first: strings.Clone(k[t.first].Text), version: strings.Clone(k[pageVersion].Text), openPage: open,
	}
	if open == nil {
		p.value = bytes.Clone(row.Value)
	}
	return p
}

// lastID returns the last id that an entry of the page may have.
func (p *heldPage) lastID() string { return bucketLast(p.first, p.bits) }

// id returns the id of an entry's series.
func (p *openPage) id(i int) string {
	if p.at != nil {
		i = int(p.at[i])
	}
	return p.ids.get(i)
}

// open opens a held page. ok is false if the page no longer exists, or if it is damaged and was reported.
func (s *scan) open(p *heldPage) (ok bool, err error) {
	there, err := s.r.open(s.ctx, s.tables, s.rows.Partition, p)
	if errors.Is(err, engine.ErrCorrupt) {
		return false, s.unreadable(p, err)
	}
	return there, err
}

// open opens a page of a partition. It returns an engine.ErrCorrupt if the page or its ids are unreadable, and false if
// the page has been removed, together with its labels page.
func (r *Rows) open(ctx context.Context, t *tables, partition engine.Key, p *heldPage) (there bool, err error) {
	if p.openPage == nil {
		parsed, err := parsePage(p.value)
		if err != nil {
			return false, err
		}
		if p.located != nil {
			p.openPage = p.located.open(parsed)
			if p.openPage == nil {
				return false, nil
			}
			return true, p.checkPlace(t)
		}
		found, err := r.idsOf(ctx, t, partition, p, parsed)
		if err != nil || found.isEmpty() {
			return false, err
		}
		if err := checkPositions(parsed, found); err != nil {
			return false, err
		}
		p.openPage = newOpenPage(parsed.Head().Kind, parsed.Head().At, found, parsed.Len())
		p.openPage.page = parsed
	}
	return true, p.checkPlace(t)
}

func parsePage(value []byte) (*page.Page, error) {
	p, err := page.Parse(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
	}
	return p, nil
}

// checkPositions returns an engine.ErrCorrupt if an entry has no id.
func checkPositions(p *page.Page, of ids) error {
	at := p.Head().At
	for i := 1; i < len(at); i++ {
		if at[i] <= at[i-1] {
			return fmt.Errorf("%w: positions are not in order: %d follows %d", engine.ErrCorrupt, at[i], at[i-1])
		}
	}
	last := p.Len() - 1
	if at != nil {
		last = int(at[len(at)-1])
	}
	if last >= of.len() {
		return fmt.Errorf("%w: a position of %d, but there are only %d series", engine.ErrCorrupt, last, of.len())
	}
	return nil
}

// checkPlace returns an engine.ErrCorrupt if the page doesn't match its key.
func (p *heldPage) checkPlace(t *tables) error {
	if got, want := p.openPage.kind, t.kindOf(p.kind); got != want {
		return fmt.Errorf("%w: a page of kind %d, expected kind %d", engine.ErrCorrupt, got, want)
	}
	for _, i := range []byte{p.order[0], p.order[p.len()-1]} {
		if id := p.id(int(i)); bucketFirst(id, p.bits) != p.first {
			return fmt.Errorf("%w: series %x isn't in its bucket", engine.ErrCorrupt, id)
		}
	}
	return nil
}

// idsOf returns the ids of a labels page, or of the labels page that a data page refers to. It returns none if that
// page no longer exists.
func (r *Rows) idsOf(
	ctx context.Context, t *tables, partition engine.Key, p *heldPage, parsed *page.Page,
) (found ids, err error) {
	head, of := parsed.Head(), labelsKey{metricOf(partition), p.version}
	if head.Kind != page.Labels {
		of.version = head.Labels
	}
	if found = r.ids.get(of); !found.isEmpty() {
		return found, nil
	}
	if head.Kind == page.Labels {
		found, err = idsOf(parsed, of.metric)
	} else {
		found, err = r.readIDs(ctx, t, partition, p, of.version)
	}
	if err != nil || found.isEmpty() {
		return ids{}, err
	}
	r.cacheIDs(of, found)
	return found, nil
}

// readIDs reads the ids of the labels page that a data page refers to. It returns none if neither the labels page nor
// the data page exists any more.
func (r *Rows) readIDs(
	ctx context.Context, t *tables, partition engine.Key, p *heldPage, version string,
) (found ids, err error) {
	key := t.pageKey(format.KindLabels, 0, p.bits, p.first, version)
	for row, err := range r.eng.Scan(ctx, engine.Range{Table: t.pages, Partition: partition, From: key, To: key}) {
		if err != nil {
			return ids{}, &labelsPageError{fmt.Errorf("labels page %x: %w", version, err)}
		}
		labels, err := parsePage(row.Value)
		if err == nil && labels.Head().Kind != page.Labels {
			err = fmt.Errorf("%w: the page has kind %d", engine.ErrCorrupt, labels.Head().Kind)
		}
		if err == nil {
			found, err = idsOf(labels, metricOf(partition))
		}
		if err != nil {
			return ids{}, &labelsPageError{fmt.Errorf("labels page %x: %w", version, err)}
		}
	}
	if !found.isEmpty() {
		return found, nil
	}
	key = t.pageKey(p.kind, p.start, p.bits, p.first, p.version)
	there := false
	for _, err := range r.eng.Scan(ctx, engine.Range{
		Table: t.pages, Partition: partition, From: key, To: key, KeysOnly: true,
	}) {
		if err != nil {
			return ids{}, &labelsPageError{err}
		}
		there = true
	}
	if there { // Both pages were written together, and neither expires nor is dropped before the other.
		return ids{}, &labelsPageError{fmt.Errorf("%w: labels page %x is missing", engine.ErrCorrupt, version)}
	}
	return ids{}, nil
}
