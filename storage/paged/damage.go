package paged

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// reports is the state of a scan for reports of damage. The scan reads its range in parts. A gap that extends to the
// end of a part is reported later, when the row after the gap is known.
type reports struct {
	last engine.Key // key of the last row that was yielded, or skipped before the scan restarted; nil if there is none
	text []byte     // memory of last
	// open is a gap that extends to the end of a part. over is set once that part has been read.
	open *engine.Damage
	over bool
	// seen contains the errors of pages that were already reported: some pages are scanned twice.
	seen map[string]bool
}

// setPosition records the row that is yielded next, or after which the scan restarts.
func (s *scan) setPosition(key engine.Key) {
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

// reportGap reports the open gap, if any. before is the key of the row after it, or nil if the gap extends to the end.
func (s *scan) reportGap(before engine.Key) {
	if d := s.reports.open; d != nil {
		s.reports.open = nil
		d.Before = before
		s.rows.Damaged(*d)
	}
}

// partDamaged sets rows.Damaged, which reports damage of rows to the scan. rows is a part of the scan's range. If a gap
// extends to an end of the part, the row next to the gap is in the adjacent part.
func (s *scan) partDamaged(rows *engine.Range) {
	if s.rows.Damaged == nil {
		return
	}
	s.reports.over = true
	begins := len(rows.From) == len(s.rows.From) && engine.Compare(rows.From, s.rows.From) == 0
	ends := len(rows.To) == len(s.rows.To) && engine.Compare(rows.To, s.rows.To) == 0
	rows.Damaged = func(d engine.Damage) {
		if d.After != nil { // This may be the key of an unwanted row. The row ends the previous gap.
			s.reportGap(d.After)
		} else if !begins {
			if s.reports.open != nil { // The gap continues from the previous part.
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

// pagesDamaged returns the function that reports damage of pages; nil if damage ends the scan.
func (s *scan) pagesDamaged() func(engine.Damage) {
	if s.rows.Damaged == nil {
		return nil
	}
	return func(d engine.Damage) { s.pageDamaged(d.Err) }
}

// pageDamaged reports damage of pages, each error once.
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

// Unreadable describes chunks that can't be decoded although the engine returns their bytes: an entry of a page, all
// entries of a page, or the parts of a long chunk. Unreadable labels pages aren't included, because the series of their
// chunks are unknown.
type Unreadable struct {
	First, Last string // range of ids; some or all of its series are affected
	From, To    int64  // range of starts; some or all of them are affected
	Err         error  // an engine.ErrCorrupt that names the table, the partition and the unreadable part
}

// Has reports whether a chunk of a series with a start in [from, to] may be affected.
func (u *Unreadable) Has(id string, from, to int64) bool {
	return u.First <= id && id <= u.Last && u.From <= to && from <= u.To
}

// labelsPageError is an error of the labels page that a data page refers to.
type labelsPageError struct{ error }

func (e *labelsPageError) Unwrap() error { return e.error }

// unreadable handles an unreadable page. It returns the error that ends the scan, or nil if the scan continues without
// the page.
func (s *scan) unreadable(p *heldPage, err error) error {
	var labels *labelsPageError
	if s.left != nil && p.kind == format.KindChunk && 0 <= p.bits && p.bits <= maxBits && !errors.As(err, &labels) {
		s.left(Unreadable{p.first, p.lastID(), p.start, p.start, damaged(s.tables, s.rows.Partition, p, err)})
		return nil
	}
	err = damaged(s.tables, s.rows.Partition, p, err)
	if s.rows.Damaged == nil {
		return err
	}
	s.pageDamaged(err)
	return nil
}

// unreadableEntry handles an unreadable entry as unreadable handles a page. The scan continues with the page's other
// entries. Only the first unreadable entry of a page is reported as damage.
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

// damaged returns an engine.ErrCorrupt that names a page.
func damaged(t *tables, partition engine.Key, p *heldPage, err error) error {
	if !errors.Is(err, engine.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
	}
	return fmt.Errorf("paged: table %s, partition %s, page %s: %w", t.pages, describeKey(t.pages.Partition, partition),
		describeKey(t.pages.Clustering, t.pageKey(p.kind, p.start, p.bits, p.first, p.version)), err)
}

// describeKey formats a key with the names of its fields.
func describeKey(fields []engine.Field, key engine.Key) string {
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
