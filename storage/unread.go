package storage

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
)

// Chunks that the engine returns but that can't be decoded are kept, and work on other chunks continues: see
// design/damage.md.

// errUnread means that a stored rollup is kept unchanged, because it is unreadable and can't be fully recomputed from
// readable rows.
var errUnread = errors.New("storage: an unreadable rollup is kept unchanged")

// unreadReporter returns a function for scans of a partition, which call it for unreadable chunks. The function reports
// each chunk, counts it once, and calls f.
func (s *Store) unreadReporter(t *engine.Table, partition engine.Key, f func(paged.Unreadable)) func(paged.Unreadable) {
	return func(u paged.Unreadable) {
		rows := engine.Range{
			Table: t, Partition: partition, From: engine.Key{engine.Int(format.KindChunk)},
			To: engine.Key{engine.Int(format.KindChunk)},
		}
		e := s.damage.GapOf(&rows, engine.Damage{Err: u.Err})
		e.From, e.To = time.UnixMilli(u.From), time.UnixMilli(s.period.SlotEnd(s.period.SlotOf(u.To+1)))
		if t == engine.R1h {
			e.To = time.UnixMilli(format.FloorDiv(u.To, format.DayMS)*format.DayMS + format.DayMS)
		}
		s.damage.Record(e)
		f(u)
	}
}

// ignoreUnreadable ignores unreadable chunks. It is used for scans whose results may omit these chunks.
func ignoreUnreadable(paged.Unreadable) {}

// unreadDeletes maps the ids of deletes that apply to unreadable chunks to the error of one of these chunks. These
// deletes are kept, because a later release may be able to read the chunks.
type unreadDeletes map[string]error

// add records err for each of the deletes. It does nothing if u is nil.
func (u unreadDeletes) add(ds format.Tombstones, err error) {
	for _, d := range ds {
		if u != nil && u[d.ID] == nil {
			u[d.ID] = err
		}
	}
}

// err returns an error that wraps engine.ErrCorrupt if u isn't empty.
func (u unreadDeletes) err() error {
	for _, err := range u {
		return fmt.Errorf("%w: %d deletes were kept, because some of the chunks they apply to are unreadable and "+
			"can't be rewritten; all other samples they apply to were removed: %w",
			engine.ErrCorrupt, len(u), err)
	}
	return nil
}

// reportCorrupt reports an unreadable chunk, and records the deletes that apply to it.
func (c *cleaner) reportCorrupt(series string, start int64, ds format.Tombstones, err error) {
	err = &damage.CorruptRowError{
		Table: c.batch.Table, Window: c.window, Tenant: c.tenant, Metric: c.batch.Partition[3].Text,
		Series: strings.Clone(series), Start: start, Err: err,
	}
	c.s.damage.RecordOnce(c.batch.Table, err)
	c.unread.add(ds, err)
}

// corruptChunkError returns the error for an unreadable chunk of the task's series.
func (r *rollupTask) corruptChunkError(t *engine.Table, window, start int64, err error) *damage.CorruptRowError {
	return &damage.CorruptRowError{
		Table: t, Window: window, Tenant: r.series.Tenant(), Metric: r.series.Metric(), Series: r.series.ID().String(),
		Start: start, Err: err,
	}
}
