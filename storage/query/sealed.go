package query

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/rollup"
)

// sealedWindow is a window in which something is sealed.
type sealedWindow struct {
	window int64
	// version is a hash of the window's marks: while it is the same, so are the window's rows.
	version uint64
	// slots are those of the request's range that are sealed, in order; others of the window may be too.
	slots []int64
	// sums are hashes of the slots' marks.
	sums []uint64
	// left are those of the slots of a window of rollups that are answered from samples, where these are kept.
	left []int64
	// cleared are the marks of deletes that were applied to the slots' rows, of those that the request applies.
	cleared map[format.CommitKey]bool
}

// windows finds the windows of a resolution in the request's range that have marks, in the order of time. What
// is sealed after this was called is not in them, so the head must have been asked before.
func (r windowFinder) windows(ctx context.Context, res rollup.Resolution) ([]sealedWindow, error) {
	r.tellKeptGaps()
	p := r.env.Period
	minT := max(r.minT, r.earliest(res)+1)
	if minT > r.maxT {
		return nil, nil
	}
	list, err := r.KnownWindows(ctx, r.tenant, p.WindowAt(res, minT), p.WindowAt(res, r.maxT), func(e *damage.DamagedRowsError) {
		r.env.Damage.Note(e)
		r.tellGap(e)
	})
	if err != nil {
		return nil, err
	}
	found := make([]sealedWindow, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ReadWorkers)
	for i, window := range list {
		if len(r.deletes) == 0 {
			if m, ok := r.heldMarks(r.tenant, window); ok {
				found[i] = m.within(window, p.SlotOf(minT), p.SlotOf(r.maxT))
				continue
			}
		}
		g.Go(panics.AsError("reading", func() (err error) {
			found[i], err = r.marks(ctx, window, p.SlotOf(minT), p.SlotOf(r.maxT))
			return err
		}))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(w sealedWindow) bool { return w.version == 0 }), nil
}

// marks finds a window's marks; its version is 0 if there are none.
func (r windowFinder) marks(ctx context.Context, window, minSlot, maxSlot int64) (sealedWindow, error) {
	if len(r.deletes) == 0 { // Else it matters which marks these are.
		if m, ok, err := r.recalledMarks(ctx, r.tenant, window); ok || err != nil {
			if err != nil {
				return sealedWindow{}, err
			}
			return m.within(window, minSlot, maxSlot), nil
		}
	}
	m, cleared := marksReader{}, map[format.CommitKey]bool(nil)
	err := r.scan(ctx, engine.Range{Table: engine.Sealed, Partition: format.SealedPartition(window, r.tenant), KeysOnly: true}, func(row engine.Row) error {
		if id := row.Clustering[2].Text; len(r.deletes) > 0 && r.deletes.Has(id) {
			if cleared == nil {
				cleared = map[format.CommitKey]bool{}
			}
			cleared[format.CommitKeyOf(row.Clustering)] = true
		}
		m.add(row)
		return nil
	})
	w := m.marks().within(window, minSlot, maxSlot)
	w.cleared = cleared
	return w, err
}

// marksReader makes marks of rows.
type marksReader struct {
	windowMarks
	all, ofSlot xxhash.Digest
	buf         []byte
}

func (m *marksReader) add(row engine.Row) {
	slot := row.Clustering[0].Int
	m.buf = binary.LittleEndian.AppendUint64(m.buf[:0], uint64(slot))
	m.buf = binary.LittleEndian.AppendUint64(m.buf, uint64(row.Clustering[1].Int))
	m.buf = append(m.buf, row.Clustering[2].Text...)
	n := len(m.slots)
	if n == 0 {
		m.all.Reset()
	}
	_, _ = m.all.Write(m.buf)
	if n == 0 || m.slots[n-1] != slot {
		m.ofSlot.Reset()
		m.slots, m.sums = append(m.slots, slot), append(m.sums, 0)
		n++
	}
	_, _ = m.ofSlot.Write(m.buf)
	m.sums[n-1] = m.ofSlot.Sum64()
}

// marks returns the marks read.
func (m *marksReader) marks() *windowMarks {
	if len(m.slots) > 0 {
		m.version = max(1, m.all.Sum64())
	}
	return &windowMarks{version: m.version, slots: m.slots, sums: m.sums}
}

// sealedMetric is a metric of a window.
type sealedMetric struct {
	name   string
	shards int64
}

// metricBytes is what a sealedMetric takes besides its text.
const metricBytes = 24

// metricNames are the metrics of a window, sorted by name.
type metricNames []sealedMetric

func (m metricNames) Bytes() (n int64) {
	for _, metric := range m {
		n += int64(len(metric.name)) + metricBytes
	}
	return n
}

// find returns the place of a metric.
func (m metricNames) find(name string) (int, bool) {
	return slices.BinarySearchFunc(m, name, func(m sealedMetric, name string) int { return strings.Compare(m.name, name) })
}

// catalogReader reads which metrics and series a window has, where the cache doesn't have them.
type catalogReader struct{ *rowReader }

// allMetrics returns all metrics of a window.
func (r catalogReader) allMetrics(ctx context.Context, w sealedWindow) (metricNames, error) {
	v, err := r.env.Cache.Get(ctx, cache.EntryKey{Kind: cache.KindMetrics, Window: w.window, Tenant: r.tenant}, w.version, func(ctx context.Context) (cache.EntryValue, error) {
		names, size := metricNames{}, r.newBudget(ctx)
		err := r.scan(ctx, engine.Range{Table: engine.Catalog, Partition: format.CatalogPartition(w.window, r.tenant, format.CatalogMetric, "")}, func(row engine.Row) error {
			names = append(names, sealedMetric{name: strings.Clone(row.Clustering[0].Text), shards: 1})
			return size.Charge(len(row.Clustering[0].Text) + metricBytes)
		})
		if err != nil {
			return nil, err
		}
		return names, r.shardsOfAll(ctx, w.window, names)
	})
	if err != nil {
		return nil, err
	}
	return v.(metricNames), nil
}

// shardsOfAll sets the shards of the metrics that have several.
func (r catalogReader) shardsOfAll(ctx context.Context, window int64, names metricNames) error {
	rows := engine.Range{Table: engine.Shards, Partition: format.ShardsPartition(window, r.tenant)}
	rows.Damaged = func(d engine.Damage) {
		r.env.Damage.NoteRows(&rows, d)
		for i := range names {
			if name := names[i].name; (d.After == nil || d.After[0].Text < name) && (d.Before == nil || name < d.Before[0].Text) {
				names[i].shards = format.MaxShards
			}
		}
	}
	return r.scan(ctx, rows, func(row engine.Row) error {
		name := row.Clustering[0].Text
		i, ok := names.find(name)
		if ok {
			names[i].shards = r.shards(window, name, row.Value)
		}
		return nil
	})
}

// shards reads a number of shards; one that can't be read is named, and taken for 1.
func (r catalogReader) shards(window int64, metric string, value []byte) int64 {
	n, err := format.ParseShards(value)
	if err != nil {
		r.corrupt(&damage.CorruptRowError{Table: engine.Shards, Window: window, Tenant: r.tenant, Metric: strings.Clone(metric), Err: err})
	}
	return n
}
