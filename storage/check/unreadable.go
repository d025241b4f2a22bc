package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/damagedblock"
)

// maxNamed is the max number of gaps that are recognized when they are found again. It is also the max number of
// damaged blocks whose rows are collected, and of metrics and of tenants that are counted per block and table.
const maxNamed = 10_000

// unreadable collects the unreadable rows. A damaged block may contain rows of many metrics, and damage in the index of
// a file affects all rows of the file. So all gaps that are caused by the same block are one problem, which is reported
// when the files are verified. Other gaps are reported when they are found.
type unreadable struct {
	// gaps is the number of gaps that were found. named has the descriptions of reported gaps, up to maxNamed.
	gaps   int
	named  map[string]bool
	blocks []*damagedBlock
}

// damagedBlock is a damaged block of a file, with the unreadable rows in it.
type damagedBlock struct {
	*damagedblock.BlockError
	tables []*missingRows
}

// missingRows are the unreadable rows of a table in a block.
type missingRows struct {
	damage.DamagedRowsError // without Tenant and Metric, which are in the sets
	tenants, metrics        map[string]bool
}

// addMissed adds unreadable rows.
func (c *checker) addMissed(rows *damage.DamagedRowsError) {
	c.gaps++
	if b := c.blockOf(rows.Err); b != nil {
		b.add(rows)
	} else {
		c.reportOnce(fmt.Sprintf("%s: %v", rows.Description(), rows.Err))
	}
}

// reportDamage adds damage that interrupted a part of the check, and returns nil so that the check continues with the
// next part. It returns other errors.
func (c *checker) reportDamage(err error) error {
	if !errors.Is(err, engine.ErrCorrupt) {
		return err
	}
	c.gaps++
	if c.blockOf(err) == nil {
		c.reportOnce(err.Error())
	}
	return nil
}

func (c *checker) reportOnce(gap string) {
	if c.named[gap] {
		return
	}
	if len(c.named) < maxNamed {
		c.named[gap] = true
	}
	c.report("unreadable: %s", gap)
}

// blockOf returns the damaged block in an error. It adds the block if it is new. It returns nil if the error has no
// block, or if the block is new and maxNamed blocks are known.
func (u *unreadable) blockOf(err error) *damagedBlock {
	var found *damagedblock.BlockError
	if !errors.As(err, &found) {
		return nil
	}
	i := slices.IndexFunc(u.blocks, func(b *damagedBlock) bool { return isSame(b.BlockError, found) })
	if i < 0 && len(u.blocks) == maxNamed {
		return nil
	}
	if i < 0 {
		i, u.blocks = len(u.blocks), append(u.blocks, &damagedBlock{BlockError: found})
	}
	return u.blocks[i]
}

func isSame(a, b *damagedblock.BlockError) bool {
	return a.File == b.File && a.Offset == b.Offset && (a.File != "" || a.Error() == b.Error())
}

// addPart reports a damaged part of a file, with the unreadable rows in it.
func (c *checker) addPart(problem error) {
	var part *damagedblock.BlockError
	if !errors.As(problem, &part) {
		c.report("%v", problem)
		return
	}
	i := slices.IndexFunc(c.blocks, func(b *damagedBlock) bool { return isSame(b.BlockError, part) })
	if i < 0 {
		c.report("%v", problem)
		return
	}
	c.report("%v%s", problem, c.blocks[i].affected())
	c.blocks = slices.Delete(c.blocks, i, i+1)
}

// reportBlocks reports the damaged blocks that aren't part of a reported file.
func (u *unreadable) reportBlocks(c *checker) {
	for _, b := range u.blocks {
		c.report("unreadable: %v%s", b.BlockError, b.affected())
	}
	u.blocks = nil
}

func (b *damagedBlock) add(rows *damage.DamagedRowsError) {
	i := slices.IndexFunc(b.tables, func(m *missingRows) bool { return m.Table == rows.Table })
	if i < 0 {
		i, b.tables = len(b.tables), append(b.tables, &missingRows{
			DamagedRowsError: damage.DamagedRowsError{Table: rows.Table, From: rows.From, To: rows.To},
			tenants:          map[string]bool{}, metrics: map[string]bool{},
		})
	}
	m := b.tables[i]
	m.From, m.To = earlier(m.From, rows.From), later(m.To, rows.To)
	for _, set := range []struct {
		names map[string]bool
		name  string
	}{{m.tenants, rows.Tenant}, {m.metrics, rows.Metric}} {
		if set.name != "" && len(set.names) < maxNamed {
			set.names[set.name] = true
		}
	}
}

// earlier returns the earlier of two limits of a time range. A zero limit is unknown, and is ignored.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two limits. A zero limit is unknown, and is ignored.
func later(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.After(a) {
		return b
	}
	return a
}

// affected describes the unreadable rows in a block, if any were found.
func (b *damagedBlock) affected() string {
	if len(b.tables) == 0 {
		return ""
	}
	slices.SortFunc(b.tables, func(x, y *missingRows) int { return cmp.Compare(x.Table.Name, y.Table.Name) })
	texts := make([]string, len(b.tables))
	for i, m := range b.tables {
		texts[i] = m.String()
	}
	return "; affected: " + strings.Join(texts, "; ")
}

func (m *missingRows) String() string {
	e := m.DamagedRowsError
	var metrics, tenants string
	e.Metric, metrics = onlyName(m.metrics, "metrics")
	e.Tenant, tenants = onlyName(m.tenants, "tenants")
	return e.Description() + metrics + tenants
}

// onlyName returns the name in a set of one name, or a text with the number of names.
func onlyName(names map[string]bool, noun string) (only, text string) {
	switch len(names) {
	case 0:
		return "", ""
	case 1:
		return slices.Collect(maps.Keys(names))[0], ""
	case maxNamed:
		noun = "or more " + noun
	}
	return "", fmt.Sprintf(", %d %s, such as %q", len(names), noun, slices.Min(slices.Collect(maps.Keys(names))))
}
