package paged

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// reports is the memory of a scan for reports of damage. A gap of rows that reaches the end of the part of the range that is read is reported when the row after
// it is known.
type reports struct {
	last engine.Key // of the last row that was yielded, or passed over before the scan began anew; nil: there is none
	text []byte     // memory of last
	// open is a gap that reaches the end of a part; over: the part has been read.
	open *engine.Damage
	over bool
	// seen are the errors that were reported of pages: some are scanned twice.
	seen map[string]bool
}

// reached notes that a row is yielded next, or that the scan begins anew behind it.
func (s *scan) reached(key engine.Key) {
	g := &s.reports
	if g.open != nil && g.over {
		s.reportGap(key.Clone())
	}
	n := 0
	for _, v := range key {
		n += len(v.Text)
	}
	if cap(g.text) < n {
		g.text = make([]byte, 0, 2*n)
	}
	g.text, g.last = g.text[:0], g.last[:0]
	for _, v := range key {
		from := len(g.text)
		g.text = append(g.text, v.Text...)
		g.last = append(g.last, engine.Value{Int: v.Int, Text: engine.UnsafeText(g.text[from:])})
	}
}

// reportGap reports the gap that is open, if there is one; before is the key of the row after it, nil: it reaches the end.
func (s *scan) reportGap(before engine.Key) {
	if d := s.reports.open; d != nil {
		s.reports.open = nil
		d.Before = before
		s.rows.Damaged(*d)
	}
}

// partDamaged sets how damage of rows, a part of the range, is reported: a gap that reaches an end of the part has the row on the other side
// of this end next to it.
func (s *scan) partDamaged(rows *engine.Range) {
	if s.rows.Damaged == nil {
		return
	}
	s.reports.over = true
	begins := len(rows.From) == len(s.rows.From) && engine.Compare(rows.From, s.rows.From) == 0
	ends := len(rows.To) == len(s.rows.To) && engine.Compare(rows.To, s.rows.To) == 0
	rows.Damaged = func(d engine.Damage) {
		if d.After != nil { // Maybe of a row that isn't wanted, which ends the gap before.
			s.reportGap(d.After)
		} else if !begins {
			if s.reports.open != nil { // It goes on from the part before.
				d.After = s.reports.open.After
			} else if s.reports.last != nil {
				d.After = s.reports.last.Clone()
			}
		}
		s.reports.open = nil
		if d.Before == nil && !ends {
			s.reports.open, s.reports.over = &d, false
			return
		}
		s.rows.Damaged(d)
	}
}

// pagesDamaged returns the function that takes damage of pages; nil: it ends the scan.
func (s *scan) pagesDamaged() func(engine.Damage) {
	if s.rows.Damaged == nil {
		return nil
	}
	return func(d engine.Damage) { s.pageDamaged(d.Err) }
}

// pageDamaged reports damage of pages, each once.
func (s *scan) pageDamaged(err error) {
	if s.reports.seen[err.Error()] {
		return
	}
	if s.reports.seen == nil {
		s.reports.seen = map[string]bool{}
	}
	s.reports.seen[err.Error()] = true
	s.rows.Damaged(engine.Damage{Err: err})
}

// Unreadable are chunks that can't be read, though the engine has what holds them as it was written: an entry of a page, the entries of a page,
// or the parts of a long chunk. A labels page that can't be read isn't one: whose chunks these are isn't known then.
type Unreadable struct {
	First, Last string // ids: of some or all series from one to the other
	From, To    int64  // starts: of some or all from one to the other
	Err         error  // an engine.ErrCorrupt that names the table, the partition and what can't be read
}

// Has reports whether a chunk of a series that starts between two times may be among them.
func (u *Unreadable) Has(id string, from, to int64) bool {
	return u.First <= id && id <= u.Last && u.From <= to && from <= u.To
}

// labelsPageError is an error of the labels page that a page refers to.
type labelsPageError struct{ error }

func (e *labelsPageError) Unwrap() error { return e.error }

// unreadable handles a page that can't be read: it returns the error that ends the scan, nil: it goes on without the page.
func (s *scan) unreadable(p *heldPage, err error) error {
	var labels *labelsPageError
	if s.left != nil && p.kind == format.KindChunk && 0 <= p.bits && p.bits <= maxBits && !errors.As(err, &labels) {
		s.left(Unreadable{p.first, p.last(), p.start, p.start, damaged(s.tables, s.rows.Partition, p, err)})
		return nil
	}
	err = damaged(s.tables, s.rows.Partition, p, err)
	if s.rows.Damaged == nil {
		return err
	}
	s.pageDamaged(err)
	return nil
}

// unreadableEntry handles an entry that can't be read, as unreadable does with pages. Others of its page are read; only the first one that can't be
// is reported as damage.
func (s *scan) unreadableEntry(e entry, err error) error {
	err = fmt.Errorf("series %x: %w", e.id, err)
	switch {
	case s.left != nil && e.page.kind == format.KindChunk:
		s.left(Unreadable{e.id, e.id, e.page.start, e.page.start, damaged(s.tables, s.rows.Partition, e.page, err)})
		return nil
	case e.page.bad:
		return nil
	}
	e.page.bad = true
	return s.unreadable(e.page, err)
}

// damaged returns the engine.ErrCorrupt that names a page.
func damaged(t *tables, partition engine.Key, p *heldPage, err error) error {
	if !errors.Is(err, engine.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
	}
	return fmt.Errorf("paged: table %s, partition %s, page %s: %w", t.pages, describe(t.pages.Partition, partition),
		describe(t.pages.Clustering, t.pageKey(p.kind, p.start, p.bits, p.first, p.version)), err)
}

// describe names the fields of a key.
func describe(fields []engine.Field, key engine.Key) string {
	var all []string
	for i, v := range key {
		switch f := fields[i]; f.Kind {
		case engine.KindInt:
			all = append(all, fmt.Sprintf("%s %d", f.Name, v.Int))
		case engine.KindText:
			all = append(all, fmt.Sprintf("%s %q", f.Name, v.Text))
		default:
			all = append(all, fmt.Sprintf("%s %x", f.Name, v.Text))
		}
	}
	return "(" + strings.Join(all, ", ") + ")"
}
