package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// ImportedSeries is a series with samples of any slots. Both belong to the store from Import on.
type ImportedSeries struct {
	Labels  labels.Labels
	Samples *chunk.Samples
}

// ImportStats says what an import did. Samples that a source gave twice count once.
type ImportStats struct {
	// Series brought anything; Samples were written, in Chunks chunks of Bytes bytes.
	Series, Samples, Chunks int
	Bytes                   int64
	// Known samples were there already.
	Known int
	// RollupsOnly are samples that are too old for raw rows: they are in the rollups.
	RollupsOnly int
	// Expired are samples that are too old for any row, Ahead those too far in the future, Refused those that can't be
	// stored at all, for their series' labels or their own sake. None of these was taken.
	Expired, Ahead, Refused int
	// Refusals tell why, for the first that were refused.
	Refusals []Refusal
}

// Refusal is a series of which samples were not taken.
type Refusal struct {
	Labels  labels.Labels
	Samples int
	Err     error
}

// maxRefusals bounds ImportStats.Refusals.
const maxRefusals = 20

// Add adds what another import did.
func (a *ImportStats) Add(b ImportStats) {
	a.Series += b.Series
	a.Samples += b.Samples
	a.Chunks += b.Chunks
	a.Bytes += b.Bytes
	a.Known += b.Known
	a.RollupsOnly += b.RollupsOnly
	a.Expired += b.Expired
	a.Ahead += b.Ahead
	a.Refused += b.Refused
	a.Refusals = append(a.Refusals, b.Refusals[:min(len(b.Refusals), maxRefusals-len(a.Refusals))]...)
}

// refuse counts samples that can't be stored.
func (a *ImportStats) refuse(ls labels.Labels, samples int, err error) {
	if samples == 0 {
		return
	}
	a.Refused += samples
	if len(a.Refusals) < maxRefusals {
		a.Refusals = append(a.Refusals, Refusal{ls, samples, err})
	}
}

// imports are the imports of a process, one after the other. They know series by themselves, so that the head,
// which holds what is not sealed, doesn't grow.
type imports struct {
	mu   sync.Mutex
	head *head
}

// importHeadBytes bounds the series that imports remember; beyond, they forget all, and write names and labels again.
const importHeadBytes = 256 << 20

// Import seals the samples of a tenant directly, without the stage, with their rollups:
//
//	series ─► days ─► partitions, side by side ─► chunks, labels, catalog ─► 5m ─► 1h ─► marks
//
// All of it is durable when it returns. It may be repeated, after an error or a crash, with the same series or others
// that overlap: samples that are sealed already are left out. What the stage and the head hold of the same slots is
// sealed later, as late data. Of what is too old for raw rows only rollups are made, whole buckets of them: so the
// samples of a series and slot should come in one call. The limits of tenants don't count.
func (s *Store) Import(ctx context.Context, tenant string, list []ImportedSeries) (stats ImportStats, err error) {
	s.imports.mu.Lock()
	defer s.imports.mu.Unlock()
	if s.imports.head == nil || s.imports.head.bytes.Load() > importHeadBytes {
		s.imports.head = newHead(len(s.head.parts))
		s.imports.head.classOf = s.classes.of
	}
	m := &importing{s: s, head: s.imports.head, tenant: s.imports.head.tenant(tenant), cells: map[importAt]*importCell{}}
	for i := range list {
		if err := m.add(&list[i]); err != nil {
			return m.stats, err
		}
	}
	days := slices.SortedFunc(maps.Values(m.cells), func(a, b *importCell) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.partition, b.partition))
	})
	for from := 0; from < len(days); {
		to := from + 1
		for to < len(days) && days[to].day == days[from].day {
			to++
		}
		if err := m.day(ctx, days[from:to]); err != nil {
			return m.stats, err
		}
		from = to
	}
	return m.stats, nil
}

// importing is one import.
type importing struct {
	s      *Store
	head   *head
	tenant *headTenant
	cells  map[importAt]*importCell
	stats  ImportStats
}

// importAt names what is imported together: a day, which holds whole slots and lies in one window of each resolution,
// and a partition.
type importAt struct {
	day       int64 // its start, milliseconds
	partition int
}

// importCell is what comes to one of them.
type importCell struct {
	importAt
	list []importedDay
}

// importedDay is a series with its samples of a day.
type importedDay struct {
	collected
	samples chunk.Samples
}

// add cuts a series into days.
func (m *importing) add(in *ImportedSeries) error {
	samples := in.Samples
	if err := checkLabels(in.Labels, m.s.opts.labelBounds(m.tenant.name)); err != nil {
		m.stats.refuse(in.Labels, samples.Len(), err)
		return nil
	}
	m.canonical(in.Labels, samples)
	samples.Normalize()
	if samples.Len() == 0 {
		return nil
	}
	newest := m.s.opts.Now().Add(MaxAhead).UnixMilli()
	before := samples.Len()
	samples.Clip(-maxTime, newest)
	m.stats.Ahead += before - samples.Len()
	if samples.Len() == 0 {
		return nil
	}
	series, err := m.head.define(m.tenant, in.Labels.WithoutEmpty().Copy(), nil)
	if err != nil {
		return err
	}
	m.stats.Series++
	for rest := *samples; rest.Len() > 0; {
		first, _ := boundsOf(&rest)
		slot := m.s.period.slotOf(first)
		at := importAt{m.s.period.dayOf(slot), m.s.partitionOf(series, slot)}
		c := m.cells[at]
		if c == nil {
			c = &importCell{importAt: at}
			m.cells[at] = c
		}
		day := importedDay{collected: collected{series: series}}
		day.samples, rest = cutSamples(rest, at.day+dayMS)
		c.list = append(c.list, day)
	}
	return nil
}

// canonical brings histograms into the form in which they are stored, and drops those that have none.
func (m *importing) canonical(ls labels.Labels, samples *chunk.Samples) {
	samples.H = slices.DeleteFunc(samples.H, func(h chunk.Histogram) bool {
		return h.Int == nil && h.Float == nil
	})
	kept := samples.H[:0]
	for _, h := range samples.H {
		canonical, err := chunk.Canonical(h)
		if err != nil {
			m.stats.refuse(ls, 1, &InvalidHistogramError{Err: err})
			continue
		}
		kept = append(kept, canonical)
	}
	clear(samples.H[len(kept):])
	samples.H = kept
}

// cutSamples cuts normalized samples behind a timestamp. Both parts share the memory of samples.
func cutSamples(samples chunk.Samples, at int64) (until, after chunk.Samples) {
	n, _ := slices.BinarySearch(samples.T, at+1)
	h, _ := slices.BinarySearchFunc(samples.H, at+1, func(x chunk.Histogram, t int64) int { return cmp.Compare(x.T, t) })
	until = chunk.Samples{T: samples.T[:n:n], V: samples.V[:n:n], H: samples.H[:h:h]}
	after = chunk.Samples{T: samples.T[n:], V: samples.V[n:], H: samples.H[h:]}
	if len(samples.ST) > 0 {
		until.ST, after.ST = samples.ST[:n:n], samples.ST[n:]
	}
	return until, after
}

// day seals what came of one day, its partitions side by side.
func (m *importing) day(ctx context.Context, cells []*importCell) error {
	workers := runtime.GOMAXPROCS(0)
	if m.s.opts.Shared {
		workers = m.s.opts.seams.workers(readWorkers)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	stats := make([]ImportStats, len(cells))
	for i, c := range cells {
		g.Go(func() error {
			x := &importSealer{s: m.s, ctx: ctx, head: m.head, tenant: m.tenant, cell: c, rows: &sealedRows{}, slots: map[int64]*sealer{}}
			err := x.run()
			stats[i] = x.stats
			return err
		})
	}
	err := g.Wait()
	for i := range stats {
		m.stats.Add(stats[i])
	}
	return err
}

// importSealer seals a day of a partition: with a sealer a slot, which write together.
type importSealer struct {
	s      *Store
	ctx    context.Context
	head   *head
	tenant *headTenant
	cell   *importCell
	rows   *sealedRows
	// base is a sealer for what concerns the day. slots are those of the slots that have samples, by their starts.
	base  *sealer
	slots map[int64]*sealer
	stats ImportStats
	late  bool
	// deletes are those that were made before.
	deletes deletions
	// done are the series of the flush under way.
	done []*collected
}

func (x *importSealer) run() (err error) {
	if err := x.s.mayWrite(); err != nil {
		return err
	}
	x.s.sealMu[x.cell.partition].Lock()
	defer x.s.sealMu[x.cell.partition].Unlock()
	// The samples come now: no delete was made after them that is read here, and those that chunks name must be all
	// that there are.
	if x.deletes, err = x.s.deletesOf(x.ctx, x.tenant.name); err != nil {
		return err
	}
	fresh, late := x.byAge()
	for i, list := range [][]*importedDay{fresh, late} {
		if len(list) == 0 {
			continue
		}
		x.late = i == 1
		x.base = x.sealer(x.s.period.slotOf(x.cell.day + 1))
		clear(x.slots)
		if err := x.seal(list); err != nil {
			return err
		}
	}
	return nil
}

// byAge tells series whose raw window stands from those for which it may be gone, and leaves out those for which
// that of 5m rollups may be.
func (x *importSealer) byAge() (fresh, late []*importedDay) {
	now := x.s.opts.Now().UnixMilli()
	slot := x.s.period.slotOf(x.cell.day + 1)
	for i := range x.cell.list {
		c := &x.cell.list[i]
		c.class = x.s.classes.writable(c.series.class, now)
		keep := x.s.classes.keep(x.tenant.name, c.class)
		switch {
		case x.s.isExpired(rollup.FiveMinutes, slot, keep):
			x.stats.Expired += c.samples.Len()
		case x.s.isExpired(rollup.Raw, slot, keep):
			late = append(late, c)
		default:
			fresh = append(fresh, c)
		}
	}
	return fresh, late
}

// sealer returns a sealer of a slot, which writes with all others.
func (x *importSealer) sealer(slot int64) *sealer {
	y := newSealer(x.ctx, x.s, Work{Slot: slot, Partition: x.cell.partition})
	y.sealedRows, y.late, y.again = x.rows, x.late, true
	y.deletes = map[string]deletions{x.tenant.name: x.deletes.inSlot(x.s.period, slot)}
	return y
}

// slot returns the sealer of a slot that has samples.
func (x *importSealer) slot(slot int64) *sealer {
	y := x.slots[slot]
	if y == nil {
		y = x.sealer(slot)
		x.slots[slot] = y
	}
	return y
}

// seal writes the rows of series that are of one age.
func (x *importSealer) seal(list []*importedDay) error {
	for res, at := range x.base.into {
		if x.late && res == int(rollup.Raw) {
			continue
		}
		if err := x.s.listWindow(x.ctx, x.tenant.name, at.window); err != nil {
			return err
		}
	}
	if err := x.spread(list); err != nil {
		return err
	}
	brought := 0
	for i, c := range list {
		brought += c.samples.Len()
		for rest := c.samples; rest.Len() > 0; {
			t, _ := boundsOf(&rest)
			y := x.slot(x.s.period.slotOf(t))
			var part chunk.Samples
			part, rest = cutSamples(rest, x.s.period.slotEnd(y.work.Slot))
			if err := y.series(&c.collected, &part, true); err != nil {
				return err
			}
		}
		x.done = append(x.done, &c.collected)
		if x.rows.bytes >= sealWriteBytes || i == len(list)-1 {
			if err := x.flush(); err != nil {
				return err
			}
		}
	}
	x.count(brought)
	return x.mark()
}

// count adds up what the sealers of slots did.
func (x *importSealer) count(brought int) {
	if x.late {
		x.stats.RollupsOnly += brought
		return
	}
	written := 0
	for _, y := range x.slots {
		written += y.stats.Samples
		x.stats.Chunks += y.stats.Chunks
		x.stats.Bytes += y.stats.Bytes
	}
	x.stats.Samples += written
	x.stats.Known += brought - written
	x.s.metrics.sealedSamples.Add(float64(written))
}

// spread puts series in the order of metrics, classes and shards, and makes sure that there are as many shards as all
// series of a metric need that this and earlier imports brought.
func (x *importSealer) spread(list []*importedDay) error {
	slices.SortFunc(list, func(a, b *importedDay) int { return strings.Compare(a.series.metric, b.series.metric) })
	period := x.s.period.of(x.base.work.Slot)
	perDay := dayMS / period.SlotMS
	for from := 0; from < len(list); {
		metric, to := list[from].series.metric, from
		var bytes int64
		for ; to < len(list) && list[to].series.metric == metric; to++ {
			bytes += encodedBytes(&list[to].samples)
		}
		n := max(to-from, x.head.seriesCount(x.tenant, metric)/period.Partitions)
		bytes = bytes * int64(n) / int64(to-from) / perDay
		for res := range rollup.Resolution(resolutions) {
			if err := x.base.recallShards(res, x.tenant.name, metric); err != nil {
				return err
			}
			shards, err := x.base.shardsFor(res, x.tenant.name, metric, n, bytes)
			if err != nil {
				return err
			}
			for _, c := range list[from:to] {
				c.shards[res] = shardOf(c.series.id, shards)
			}
		}
		slices.SortFunc(list[from:to], func(a, b *importedDay) int {
			return cmp.Or(cmp.Compare(a.at(rollup.Raw), b.at(rollup.Raw)), strings.Compare(a.series.id.String(), b.series.id.String()))
		})
		from = to
	}
	return nil
}

// recallShards makes sure that this process knows how many shards a metric got before it was started.
func (x *sealer) recallShards(res rollup.Resolution, tenant, metric string) error {
	of := shardedMetric{x.into[res].window, tenant, metric}
	if x.s.shards.has(of) {
		return nil
	}
	n, err := x.s.readShards(x.ctx, of.window, tenant, metric)
	if err != nil {
		return err
	}
	x.s.shards.set(of, n)
	return nil
}

// encodedBytes is about how many bytes samples take in chunks, or more.
func encodedBytes(samples *chunk.Samples) int64 {
	n := 2 * len(samples.T)
	for _, h := range samples.H {
		if h.Int != nil {
			n += 16 + 2*(len(h.Int.PositiveBuckets)+len(h.Int.NegativeBuckets))
		} else {
			n += 16 + 4*(len(h.Float.PositiveBuckets)+len(h.Float.NegativeBuckets))
		}
	}
	return int64(n)
}

// seriesCount returns how many series of a metric the head knows.
func (h *head) seriesCount(t *headTenant, metric string) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if m := t.metrics[metric]; m != nil {
		return len(m.series)
	}
	return 0
}

// flush writes chunks, then the 5m rollups of each slot, then the 1h rollups of the day, which are made once.
func (x *importSealer) flush() error {
	if err := x.base.write(); err != nil {
		return err
	}
	for _, slot := range slices.Sorted(maps.Keys(x.slots)) {
		y := x.slots[slot]
		if err := y.rollFine(); err != nil {
			return err
		}
		clear(y.rolls)
		y.rolls = y.rolls[:0]
	}
	for _, c := range x.done {
		x.base.rolls = append(x.base.rolls, roll{collected: c})
	}
	err := x.base.rollCoarse()
	clear(x.base.rolls)
	x.base.rolls, x.done = x.base.rolls[:0], x.done[:0]
	return err
}

// mark says that the slots were sealed once more, as sealer.mark does.
func (x *importSealer) mark() error {
	ids := map[int64]string{}
	for slot := range x.slots {
		ids[slot] = newID()
	}
	for res := rollup.OneHour + 1; res > 0; res-- {
		if x.late && res-1 == rollup.Raw {
			break
		}
		var all engine.Batch
		for slot, y := range x.slots {
			row := x.s.markRow(x.tenant.name, y.into[res-1], slot, x.cell.partition, ids[slot])
			all.Table, all.Partition = row.Table, row.Partition
			all.Mutations = append(all.Mutations, row.Mutations...)
		}
		if err := x.s.eng.Write(x.ctx, []engine.Batch{all}); err != nil {
			return fmt.Errorf("storage: marking the day from %d of %q as imported: %w", x.cell.day, x.tenant.name, err)
		}
	}
	return nil
}
