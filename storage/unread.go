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

// Chunks that can't be read, though the engine has what holds them as it was written, stay where they are, and the work on others goes on:
// see design/damage.md.

// errUnread means that a rollup stays as it is: the stored one can't be read, and what can be read doesn't make all of it anew.
var errUnread = errors.New("storage: an unreadable rollup is kept unchanged")

// unread returns what takes the chunks of a partition that a scan leaves out because they can't be read: each is named and counted once.
func (s *Store) unread(t *engine.Table, partition engine.Key, f func(paged.Unreadable)) func(paged.Unreadable) {
	return func(u paged.Unreadable) {
		rows := engine.Range{Table: t, Partition: partition, From: engine.Key{engine.Int(format.KindChunk)}, To: engine.Key{engine.Int(format.KindChunk)}}
		e := s.damage.GapOf(&rows, engine.Damage{Err: u.Err})
		e.From, e.To = time.UnixMilli(u.From), time.UnixMilli(s.period.SlotEnd(s.period.SlotOf(u.To+1)))
		if t == engine.R1h {
			e.To = time.UnixMilli(format.FloorDiv(u.To, format.DayMS)*format.DayMS + format.DayMS)
		}
		s.damage.Note(e)
		f(u)
	}
}

// anyUnread is for scans that don't depend on chunks that can't be read.
func anyUnread(paged.Unreadable) {}

// unreadDeletes are deletes that are about chunks which can't be read, with an error of one of these, by id. They stay: the chunks may be read one day, by a
// later release.
type unreadDeletes map[string]error

// add adds deletes, if they are to be known.
func (u unreadDeletes) add(ds format.Tombstones, err error) {
	for _, d := range ds {
		if u != nil && u[d.ID] == nil {
			u[d.ID] = err
		}
	}
}

// err returns an engine.ErrCorrupt if there are any.
func (u unreadDeletes) err() error {
	for _, err := range u {
		return fmt.Errorf("%w: %d deletes were kept, because some of the chunks they apply to are unreadable and can't be rewritten; all other "+
			"samples they apply to were removed: %w",
			engine.ErrCorrupt, len(u), err)
	}
	return nil
}

// corrupt names a chunk that can't be read, and adds the deletes that are about it.
func (c *cleaner) corrupt(series string, start int64, ds format.Tombstones, err error) {
	err = &damage.CorruptRowError{Table: c.batch.Table, Window: c.window, Tenant: c.tenant, Metric: c.batch.Partition[3].Text, Series: strings.Clone(series), Start: start, Err: err}
	c.s.damage.NoteOnce(c.batch.Table, err)
	c.unread.add(ds, err)
}

// corruptChunk is a chunk of a task's series that can't be read.
func (r *rollupTask) corruptChunk(t *engine.Table, window, start int64, err error) *damage.CorruptRowError {
	return &damage.CorruptRowError{
		Table: t, Window: window, Tenant: r.series.Tenant(), Metric: r.series.Metric(), Series: r.series.ID().String(), Start: start, Err: err,
	}
}
