package storage

import (
	"context"
	"errors"
	"iter"

	"github.com/cassia-db/cassia/storage/engine"
)

// verifier is implemented by engines whose files are this process' to verify: each damaged part of a file is reported.
type verifier interface {
	VerifyFiles(ctx context.Context, report func(problem string)) (files int, bytes int64, err error)
}

// scan reads rows; what of them can't be read is reported.
func (c *checker) scan(rows engine.Range) iter.Seq2[engine.Row, error] {
	rows.Damaged = func(d engine.Damage) { c.missed(c.s.gapOf(&rows, d)) }
	return c.s.eng.Scan(c.ctx, rows)
}

func (c *checker) missed(e *DamagedRowsError) {
	c.gaps++
	c.report("can't be read: %s: %v", e.What(), e.Err)
}

// goOn reports damage that ended a part of the check, so that the rest of it goes on.
func (c *checker) goOn(err error) error {
	if !errors.Is(err, engine.ErrCorrupt) {
		return err
	}
	c.gaps++
	c.report("can't be read: %v", err)
	return nil
}

// files verifies the engine's files: what can't be read there may belong to rows that nothing leads to any more.
func (c *checker) files() (err error) {
	if v, ok := engine.As[verifier](c.s.eng); ok {
		c.stats.Files, c.stats.FileBytes, err = v.VerifyFiles(c.ctx, func(problem string) { c.report("%s", problem) })
	}
	return err
}
