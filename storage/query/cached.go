package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// What every query reads first, which windows there are and the marks in them, is remembered where the engine can ensure that nobody has
// written any since it was read (see engine.Versioned and decisions/033): a query of one series over a day needs no other row.
//
//	query ─► windows of the tenant ─► marks of each ─► series (by their version) ─► chunks
//	         └─────── by the engine's versions ─────┘

// errDamagedList means that a list lacks damaged rows, so that each query must read it, and warn.
var errDamagedList = errors.New("storage: damaged rows aren't cached")

// listedWindows are the windows of a tenant that are listed, in order. They don't change.
type listedWindows []int64

func (l listedWindows) Bytes() int64 { return int64(8 * len(l)) }

// between returns a copy of those from first to last.
func (l listedWindows) between(first, last int64) []int64 {
	from := sort.Search(len(l), func(i int) bool { return l[i] >= first })
	to := sort.Search(len(l), func(i int) bool { return l[i] > last })
	return slices.Clone(l[from:max(from, to)])
}

// windowMarks are the marks of a window. They don't change.
type windowMarks struct {
	// version is a hash of all of them; 0: there are none.
	version uint64
	// slots are those that have any, in order, and sums hashes of theirs.
	slots []int64
	sums  []uint64
}

func (m *windowMarks) Bytes() int64 { return int64(16*len(m.slots) + 64) }

// within returns a window with those of its slots that a request is about, which may be changed.
func (m *windowMarks) within(window, minSlot, maxSlot int64) sealedWindow {
	from := sort.Search(len(m.slots), func(i int) bool { return m.slots[i] >= minSlot })
	to := max(from, sort.Search(len(m.slots), func(i int) bool { return m.slots[i] > maxSlot }))
	return sealedWindow{window: window, version: m.version, slots: slices.Clone(m.slots[from:to]), sums: slices.Clone(m.sums[from:to])}
}

// remember returns the result of reading a partition once, as long as nobody has written there; ok is false if that isn't known, or if rows
// of it are damaged.
func (q *Querier) remember(ctx context.Context, t *engine.Table, partition engine.Key, key cache.EntryKey, load func(context.Context) (cache.EntryValue, error)) (v cache.EntryValue, ok bool, err error) {
	if q.env.Versions == nil {
		return nil, false, nil
	}
	version, ok := q.env.Versions.Version(t, partition)
	if !ok {
		return nil, false, nil
	}
	v, err = q.env.Cache.Get(ctx, key, version, load)
	if errors.Is(err, errDamagedList) {
		return nil, false, nil
	}
	return v, err == nil, err
}

// KnownWindows lists the windows from first to last in which a tenant may have rows, in order, as Env.Windows does, which it may remember. Code that removes
// rows, or reports which there are, reads them.
func (q *Querier) KnownWindows(ctx context.Context, tenant string, first, last int64, missed func(*damage.DamagedRowsError)) ([]int64, error) {
	if list, ok, err := q.recalledWindows(ctx, tenant); ok || err != nil {
		return list.between(first, last), err
	}
	return q.env.Windows(ctx, tenant, first, last, missed)
}

// recalledWindows returns the windows of a tenant, if they are remembered, or can be.
func (q *Querier) recalledWindows(ctx context.Context, tenant string) (listedWindows, bool, error) {
	partition := engine.Key{engine.Text(tenant)}
	v, ok, err := q.remember(ctx, engine.Windows, partition, cache.EntryKey{Kind: cache.KindWindows, Tenant: tenant}, func(ctx context.Context) (cache.EntryValue, error) {
		damaged := false
		list, err := q.env.Windows(ctx, tenant, math.MinInt64, math.MaxInt64, func(*damage.DamagedRowsError) { damaged = true })
		if err == nil && damaged {
			err = errDamagedList
		}
		return listedWindows(list), err
	})
	if err != nil || !ok {
		return nil, false, err
	}
	return v.(listedWindows), true, nil
}

// heldMarks returns the marks of a window if they are in memory.
func (q *Querier) heldMarks(tenant string, window int64) (*windowMarks, bool) {
	if q.env.Versions == nil {
		return nil, false
	}
	version, ok := q.env.Versions.Version(engine.Sealed, format.SealedPartition(window, tenant))
	if !ok {
		return nil, false
	}
	v, ok := q.env.Cache.Held(cache.EntryKey{Kind: cache.KindMarks, Window: window, Tenant: tenant}, version)
	if !ok {
		return nil, false
	}
	return v.(*windowMarks), true
}

// recalledMarks returns the marks of a window, if they are remembered, or can be.
func (q *Querier) recalledMarks(ctx context.Context, tenant string, window int64) (*windowMarks, bool, error) {
	partition := format.SealedPartition(window, tenant)
	v, ok, err := q.remember(ctx, engine.Sealed, partition, cache.EntryKey{Kind: cache.KindMarks, Window: window, Tenant: tenant}, func(ctx context.Context) (cache.EntryValue, error) {
		damaged := false
		m, err := q.scanMarks(ctx, tenant, window, func(engine.Damage) { damaged = true })
		if err == nil && damaged {
			err = errDamagedList
		}
		return m, err
	})
	if err != nil || !ok {
		return nil, false, err
	}
	return v.(*windowMarks), true, nil
}

// MarksVersion reads the version of a window's marks; 0: it has none.
func (q *Querier) MarksVersion(ctx context.Context, tenant string, window int64) (uint64, error) {
	m, err := q.scanMarks(ctx, tenant, window, nil)
	if err != nil {
		return 0, err
	}
	return m.version, nil
}

// scanMarks reads the marks of a window. Damage is handled as in engine.Range.
func (q *Querier) scanMarks(ctx context.Context, tenant string, window int64, damaged func(engine.Damage)) (*windowMarks, error) {
	var m marksReader
	for row, err := range q.env.Engine.Scan(ctx, engine.Range{Table: engine.Sealed, Partition: format.SealedPartition(window, tenant), KeysOnly: true, Damaged: damaged}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the seal records of window %d of tenant %q: %w", window, tenant, err)
		}
		m.add(row)
	}
	return m.marks(), nil
}
