package storage

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// importDay is what an import brings of a day. A day holds whole slots, and lies in one window of each resolution.
//
//	series by age ─► metrics ─► pieces of up to importPiece series ─┬─► worker ─┐
//	                                                                └─► worker ─┴─► marks
type importDay struct {
	*importing
	start int64 // milliseconds
	list  []*importedDay
	of    map[*Series]*importedDay // those of list

	ctx context.Context
	// deletes are those that were made before, begun.
	deletes deletions
	begun   time.Time
	late    bool

	mu      sync.Mutex
	touched map[cellAt]bool // what gets marks
}

// importPiece is how many series of a metric are sealed together at most.
const importPiece = 4096

// run seals the day. Meanwhile nobody else in this process seals what it is about.
func (d *importDay) run(ctx context.Context) (err error) {
	if err := d.s.believed(); err != nil {
		return err
	}
	d.ctx = ctx
	defer d.lock()()
	// The samples come now. So all deletes that are read here were made before them, as chunks that name these say, and
	// none that was made before is missing.
	d.begun = d.s.opts.Now()
	if d.deletes, err = d.s.deletesToName(ctx, d.tenant.name); err != nil {
		return err
	}
	fresh, late, err := d.byAge()
	if err != nil {
		return err
	}
	for i, list := range [][]*importedDay{fresh, late} {
		if len(list) == 0 {
			continue
		}
		d.late = i == 1
		if err := d.seal(list); err != nil {
			return err
		}
		if err := d.mark(); err != nil {
			return err
		}
	}
	return nil
}

// lock takes the locks of all partitions that the day's series are in, in the order of their numbers; a seal has one
// at a time. The function that it returns gives them back.
func (d *importDay) lock() (unlock func()) {
	slot := d.s.period.slotOf(d.start + 1)
	var partitions []int
	for _, c := range d.list {
		partitions = append(partitions, d.s.partitionOf(c.series, slot))
	}
	slices.Sort(partitions)
	partitions = slices.Compact(partitions)
	for _, p := range partitions {
		d.s.sealMu[p].Lock()
	}
	return func() {
		for _, p := range partitions {
			d.s.sealMu[p].Unlock()
		}
	}
}

// byAge tells series whose raw window stands from those for which it may be gone, and leaves out those for which
// that of 5m rollups may be.
func (d *importDay) byAge() (fresh, late []*importedDay, err error) {
	now := d.s.opts.Now().UnixMilli()
	slot := d.s.period.slotOf(d.start + 1)
	for _, c := range d.list {
		c.class = d.s.classes.writable(c.series.class, now)
		keep := d.s.classes.keep(d.tenant.name, c.class)
		withoutRaw, err := d.s.importsWithoutRaw(d.ctx, slot, d.tenant.name, c.class)
		switch {
		case err != nil:
			return nil, nil, err
		case !withoutRaw:
			fresh = append(fresh, c)
		case d.s.isGone(rollup.FiveMinutes, slot, d.tenant.name, c.class) || d.s.isOutlived(rollup.FiveMinutes, slot, keep):
			d.stats.Expired += c.samples.Len()
		default:
			late = append(late, c)
		}
	}
	return fresh, late, nil
}

// seal writes the rows of series that are of one age, but for the marks.
func (d *importDay) seal(list []*importedDay) error {
	base := d.sealer(d.s.period.slotOf(d.start+1), nil)
	for res, at := range base.into {
		if d.late && res == int(rollup.Raw) {
			continue
		}
		if err := d.s.listWindow(d.ctx, d.tenant.name, at.window); err != nil {
			return err
		}
	}
	pieces, err := d.spread(base, list)
	if err != nil {
		return err
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(d.ctx)
	workers := make([]*importWorker, min(len(pieces), runtime.GOMAXPROCS(0)))
	for i := range workers {
		w := newImportWorker(ctx, d)
		workers[i] = w
		g.Go(func() error {
			for {
				at := next.Add(1) - 1
				if at >= int64(len(pieces)) {
					return w.roll()
				}
				if err := w.seal(pieces[at]); err != nil {
					return err
				}
			}
		})
	}
	err = g.Wait()
	for _, w := range workers {
		w.count()
		d.stats.Add(w.stats)
	}
	return err
}

// sealer returns a sealer of a slot, which writes with others. Its partition doesn't matter: marks are written apart.
func (d *importDay) sealer(slot int64, rows *sealedRows) *sealer {
	y := newSealer(d.ctx, d.s, Work{Slot: slot})
	y.sealedRows, y.late, y.again, y.begun = rows, d.late, true, d.begun
	y.deletes = map[string]deletions{d.tenant.name: d.deletes.inSlot(d.s.period, slot)}
	return y
}

// spread cuts series into pieces of a metric, in the order of classes and shards, and makes sure that there are as
// many shards as all series of a metric need that this and earlier imports brought.
func (d *importDay) spread(base *sealer, list []*importedDay) (pieces [][]*importedDay, err error) {
	slices.SortFunc(list, func(a, b *importedDay) int { return strings.Compare(a.series.metric, b.series.metric) })
	period := d.s.period.of(base.work.Slot)
	perDay := dayMS / period.SlotMS
	for from := 0; from < len(list); {
		metric, to := list[from].series.metric, from
		var bytes int64
		for ; to < len(list) && list[to].series.metric == metric; to++ {
			bytes += encodedBytes(&list[to].samples)
		}
		n := max(to-from, d.head.seriesCount(d.tenant, metric))/period.Partitions + 1
		bytes = bytes * int64(n) / int64(to-from) / perDay
		for res := range rollup.Resolution(resolutions) {
			if err := base.recallShards(res, d.tenant.name, metric); err != nil {
				return nil, err
			}
			shards, err := base.shardsFor(res, d.tenant.name, metric, n, bytes)
			if err != nil {
				return nil, err
			}
			for _, c := range list[from:to] {
				c.shards[res] = shardOf(c.series.id, shards)
			}
		}
		slices.SortFunc(list[from:to], func(a, b *importedDay) int {
			return cmp.Or(cmp.Compare(a.at(rollup.Raw), b.at(rollup.Raw)), strings.Compare(a.series.id.String(), b.series.id.String()))
		})
		for piece := range slices.Chunk(list[from:to], importPiece) {
			pieces = append(pieces, piece)
		}
		from = to
	}
	return pieces, nil
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

// touch remembers what gets marks.
func (d *importDay) touch(cells map[cellAt]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := range cells {
		d.touched[at] = true
	}
}

// mark says that the slots were sealed once more, as sealer.mark does.
func (d *importDay) mark() error {
	ids := map[cellAt]string{}
	for at := range d.touched {
		ids[at] = newID()
	}
	clear(d.touched)
	for res := rollup.OneHour + 1; res > 0; res-- {
		if d.late && res-1 == rollup.Raw {
			break
		}
		var all engine.Batch
		for at, id := range ids {
			into := destination{window: d.s.period.windowOfSlot(res-1, at.slot), end: d.s.period.slotEnd(at.slot)}
			if res-1 == rollup.OneHour {
				into.end = d.start + dayMS
			}
			row := d.s.markRow(d.tenant.name, into, at.slot, at.partition, id)
			all.Table, all.Partition = row.Table, row.Partition
			all.Mutations = append(all.Mutations, row.Mutations...)
		}
		if err := d.s.eng.Write(d.ctx, []engine.Batch{all}); err != nil {
			return fmt.Errorf("storage: marking the day from %d of %q as imported: %w", d.start, d.tenant.name, err)
		}
		if len(all.Mutations) > 0 {
			if err := d.s.stayListed(d.ctx, d.tenant.name, all.Partition[0].Int); err != nil {
				return err
			}
		}
	}
	return nil
}
