package paged

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
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
		g.last = append(g.last, engine.Value{Int: v.Int, Text: unsafeString(g.text[from:])})
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

// unreadable handles a page that can't be read: it returns the error that ends the scan, nil: it goes on without the page.
func (s *scan) unreadable(p *heldPage, err error) error {
	err = damaged(s.tables, s.rows.Partition, p, err)
	if s.rows.Damaged == nil {
		return err
	}
	s.pageDamaged(err)
	return nil
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
