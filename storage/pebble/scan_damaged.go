package pebble

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// skip is the state of a scan that skips damage.
type skip struct {
	shown []byte         // the key of the last yielded row; nil: none
	bad   []byte         // the key of a single row that can't be read
	gap   *engine.Damage // to be reported when the next row is known
}

// yieldReadable yields the readable rows from lower (included) to upper (excluded), and reports gaps. An iterator fails
// as soon as one of its files fails, so the rows before damaged keys are read by an iterator that ends there:
//
//	lower ──── rows ────► error     which keys?     ┌ damaged ┐
//	              └─────────── rows ───────────────►│ a gap   │──── rows ────► upper
func (s *scanner) yieldReadable(lower, upper []byte) error {
	end := upper
	var ahead badRange // the range that starts at end, if end isn't upper
	for {
		wanted, err := s.yieldRows(lower, end)
		corrupt := errors.Is(err, engine.ErrCorrupt)
		next := lower
		if s.skip.shown != nil && bytes.Compare(s.skip.shown, lower) >= 0 {
			next = append(slices.Clone(s.skip.shown), 0)
		}
		switch {
		case err != nil && !corrupt || !wanted:
			return err
		case s.skip.bad != nil:
			s.recordMissing(err)
			lower, s.skip.bad = append(s.skip.bad, 0), nil
			continue
		case corrupt && bytes.Compare(next, end) < 0:
			found, lookErr := s.e.damagedWithin(s.ctx, next, end)
			if lookErr != nil {
				return lookErr
			}
			switch {
			case len(found) > 0 && bytes.Compare(next, found[0].start) < 0:
				lower, end, ahead = next, found[0].start, found[0]
				continue
			case len(found) > 0:
				ahead = found[0]
			case bytes.Equal(end, upper):
				return err // The position after the damage is unknown.
			}
		case bytes.Equal(end, upper):
			s.reportGap(nil)
			return nil
		}
		s.recordMissing(ahead.cause())
		if ahead.end == nil || bytes.Compare(ahead.end, upper) >= 0 {
			s.reportGap(nil)
			return nil
		}
		lower, end = ahead.end, upper
	}
}

// setPosition records the last row that the scan has reached, even if it is unreadable.
func (s *scanner) setPosition(key []byte, row engine.Row, err error) {
	if errors.Is(err, engine.ErrCorrupt) {
		s.skip.bad = slices.Clone(key)
	} else if err == nil {
		s.reportGap(row.Clustering)
		s.skip.shown = append(s.skip.shown[:0], key...)
	}
}

// recordMissing records that rows are missing after the last yielded row.
func (s *scanner) recordMissing(err error) {
	if s.skip.gap != nil {
		return
	}
	s.skip.gap = &engine.Damage{Err: err}
	if s.skip.shown != nil {
		var d keyDecoder
		// The error can be ignored: the same key was decoded before.
		s.skip.gap.After, _ = d.decode(s.r.Table.Clustering, slices.Clone(s.skip.shown[s.partition:]))
	}
}

// reportGap reports the gap before a row, or, if before is nil, the gap that extends to the end.
func (s *scanner) reportGap(before engine.Key) {
	if s.skip.gap == nil {
		return
	}
	for _, v := range before {
		s.skip.gap.Before = append(s.skip.gap.Before, engine.Value{Int: v.Int, Text: strings.Clone(v.Text)})
	}
	s.r.Damaged(*s.skip.gap)
	s.skip.gap = nil
}
