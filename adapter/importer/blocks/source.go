package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Options select the blocks and series to read.
type Options struct {
	// Dirs are blocks or folders of blocks.
	Dirs []string
	// Selection selects series and times.
	Selection importer.Selection
	// NoExternal omits the external labels that Thanos and Mimir store in meta.json. Otherwise every series gets them,
	// except the labels named in Without. Removing the replica label merges the copies of two replicas into one series.
	NoExternal bool
	Without    []string
	// BatchBytes is the approximate size of a batch. 0 means importer.BatchBytes.
	BatchBytes int
}

// Source reads blocks. It implements importer.Source.
type Source struct {
	opts   Options
	blocks []*block
	// minT and maxT are the first and last selected timestamp, in milliseconds.
	minT, maxT int64
}

const (
	dayMS = 24 * 3600 * 1000
	// dayBytes is the size in bytes from which a batch is closed at the end of a day.
	dayBytes = 8 << 20
	// skipBytes is the approximate size in memory of an importer.Skip.
	skipBytes = 500
)

// New returns a source. The caller must close it.
func New(o Options) *Source {
	if o.BatchBytes == 0 {
		o.BatchBytes = importer.BatchBytes
	}
	return &Source{opts: o}
}

// Close closes all blocks.
func (s *Source) Close() error {
	var err error
	for _, b := range s.blocks {
		err = errors.Join(err, b.close())
	}
	return err
}

// Plan implements importer.Source. It opens every block once, so that damaged blocks are found before the import
// starts.
func (s *Source) Plan(context.Context) (p importer.Plan, err error) {
	if err := s.find(); err != nil {
		return p, err
	}
	for _, b := range s.blocks {
		if err := b.open(); err != nil {
			return p, err
		}
		if err := b.close(); err != nil {
			return p, err
		}
		p.Samples += int64(b.meta.Stats.NumSamples)
		p.Series = max(p.Series, int64(b.meta.Stats.NumSeries))
	}
	p.MinMS, p.MaxMS = s.minT, s.maxT
	p.Words = fmt.Sprintf("%d blocks", len(s.blocks))
	if len(s.blocks) == 1 {
		p.Words = "1 block"
	}
	for _, dir := range s.opts.Dirs {
		if _, err := os.Stat(filepath.Join(dir, "wal")); err == nil {
			p.Words += " (without the WAL: the last hours, which Prometheus has not yet written to a block, are skipped)"
			break
		}
	}
	return p, nil
}

// find finds the blocks that overlap the selected time range.
func (s *Source) find() error {
	if s.blocks != nil {
		return nil
	}
	list, err := find(s.opts.Dirs)
	if err != nil {
		return err
	}
	s.minT, s.maxT = math.MaxInt64, math.MinInt64
	sel := &s.opts.Selection
	for _, f := range list {
		last := f.until() - 1
		if last < sel.MinMS || f.meta.MinTime > sel.MaxMS {
			continue
		}
		s.blocks = append(s.blocks, &block{found: f, external: s.external(f.external)})
		s.minT, s.maxT = min(s.minT, max(f.meta.MinTime, sel.MinMS)), max(s.maxT, min(last, sel.MaxMS))
	}
	if len(s.blocks) == 0 {
		return fmt.Errorf("%w in the selected time range", errNoBlocks)
	}
	return nil
}

// external returns the labels to add to each series of a block. ls are the external labels of the block.
func (s *Source) external(ls labels.Labels) labels.Labels {
	if s.opts.NoExternal {
		return labels.EmptyLabels()
	}
	return labels.NewBuilder(ls).Del(s.opts.Without...).Labels()
}

// Batches implements importer.Source.
func (s *Source) Batches(ctx context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		if err := s.find(); err != nil {
			yield(importer.Batch{}, err)
			return
		}
		at, err := parsePosition(after)
		if err != nil {
			yield(importer.Batch{}, err)
			return
		}
		c := &cutter{s: s, yield: yield, first: dayOf(s.minT), last: dayOf(s.maxT)}
		err = c.run(ctx, s.resume(at))
		if err != nil && !errors.Is(err, errEnough) {
			yield(importer.Batch{}, err)
		}
	}
}

// errEnough means that the consumer of the batches has stopped iterating.
var errEnough = errors.New("blocks: enough")

// dayOf returns the start of a timestamp's day. Days are left-open and right-closed, like Cassia's slots.
func dayOf(t int64) int64 {
	d := (t - 1) / dayMS
	if (t-1)%dayMS < 0 {
		d--
	}
	return d * dayMS
}

// cutter divides the contents of blocks into batches.
type cutter struct {
	s           *Source
	yield       func(importer.Batch, error) bool
	first, last int64 // days
	batch       importer.Batch
	bytes       int
	// within is the fraction of the current day that was read, from 0 to 1.
	within float64
}

func (c *cutter) run(ctx context.Context, from position) error {
	day := max(c.first, from.Day)
	for ; day <= c.last; day += dayMS {
		for _, g := range c.s.groups(day) {
			if err := c.group(ctx, day, g, from); err != nil {
				return err
			}
		}
		if c.bytes >= min(dayBytes, c.s.opts.BatchBytes) {
			if err := c.flush(position{Day: day + dayMS}); err != nil {
				return err
			}
		}
		c.s.closeUntil(day + dayMS)
	}
	if len(c.batch.Series)+len(c.batch.Buckets)+len(c.batch.Skipped) > 0 {
		return c.flush(position{Day: day})
	}
	return nil
}

// group reads a day of the blocks with the same external labels and resolution.
func (c *cutter) group(ctx context.Context, day int64, g group, from position) error {
	name := g.external.String()
	var after labels.Labels
	if from.Day == day {
		switch order := cmp.Or(cmp.Compare(g.resolution, from.Resolution), strings.Compare(name, from.Group)); {
		case order < 0:
			return nil
		case order == 0:
			after = from.labels()
		}
	}
	sel := &c.s.opts.Selection
	m, err := newMerge(ctx, g.blocks, sel.Matchers)
	if err != nil {
		return err
	}
	minT, maxT := max(day+1, sel.MinMS), min(day+dayMS, sel.MaxMS)
	for n := 0; ; n++ {
		ls, ok, err := m.next()
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !after.IsEmpty() && labels.Compare(ls, after) <= 0 {
			continue
		}
		c.within = float64(n) / float64(g.series())
		c.skip(m.outside(day, c.s))
		if g.resolution > rollup.Raw {
			err = c.buckets(day, g, m, ls)
		} else {
			err = c.samples(minT, maxT, day == c.first, g, m, ls)
		}
		if err != nil {
			return err
		}
		if c.bytes >= c.s.opts.BatchBytes {
			if err := c.flush(position{Day: day, Group: name, Resolution: g.resolution, After: ls.Map()}); err != nil {
				return err
			}
		}
	}
}

// samples adds the current series' samples to the batch.
func (c *cutter) samples(minT, maxT int64, first bool, g group, m *merge, ls labels.Labels) error {
	samples, skipped, err := m.read(minT, maxT, first)
	if err != nil {
		return err
	}
	c.skip(skipped)
	if samples.Len() > 0 {
		c.batch.Series = append(c.batch.Series, storage.ImportedSeries{
			Labels: c.s.opts.Selection.Labels(with(ls, g.external)), Samples: samples,
		})
		c.bytes += sizeOf(samples)
	}
	return nil
}

// buckets adds a day of the current series' aggregates to the batch. It selects a window by its timestamp, so that each
// window is in exactly one of multiple imports of consecutive time ranges.
func (c *cutter) buckets(day int64, g group, m *merge, ls labels.Labels) error {
	sel := &c.s.opts.Selection
	all, skipped, err := m.readWindows(day, day+dayMS, g.resolution.Width(), day == c.first)
	if err != nil {
		return err
	}
	c.skip(skipped)
	for _, list := range all {
		var b rollup.Buckets
		for i := range list {
			if list[i].stamp >= sel.MinMS && list[i].stamp <= sel.MaxMS {
				appendBuckets(&b, list[i:i+1])
			}
		}
		if b.Len() > 0 {
			c.batch.Buckets = append(c.batch.Buckets, storage.ImportedBuckets{
				Labels: sel.Labels(with(ls, g.external)), Resolution: g.resolution, Buckets: &b,
			})
			c.bytes += b.Len() * importer.BucketBytes
		}
	}
	return nil
}

// skip adds parts that can't be read to the batch.
func (c *cutter) skip(list []importer.Skip) {
	c.batch.Skipped = append(c.batch.Skipped, list...)
	c.bytes += skipBytes * len(list)
}

// with adds the external labels of a block. As in Thanos, they replace labels of the same name.
func with(ls, external labels.Labels) labels.Labels {
	if external.IsEmpty() {
		return ls
	}
	b := labels.NewBuilder(ls)
	external.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	return b.Labels()
}

// flush yields the batch. at is the position after the batch.
func (c *cutter) flush(at position) error {
	at.Sources = c.s.sourcesUntil(min(at.Day, c.last) + dayMS)
	c.batch.Position = at.String()
	done := float64(at.Day - c.first)
	if at.After != nil {
		done += min(1, c.within) * dayMS
	}
	c.batch.Done = min(1, done/float64(c.last+dayMS-c.first))
	b := c.batch
	c.batch, c.bytes = importer.Batch{}, 0
	if !c.yield(b, nil) {
		return errEnough
	}
	return nil
}

// group is a set of blocks with the same resolution and external labels.
type group struct {
	external   labels.Labels
	resolution rollup.Resolution
	blocks     []*block
}

// series returns the approximate number of series in the blocks, at least 1.
func (g *group) series() (n uint64) {
	for _, b := range g.blocks {
		n = max(n, b.meta.Stats.NumSeries)
	}
	return max(n, 1)
}

// groups returns the blocks that overlap a day, by resolution and external labels. The finest resolution comes first,
// because the store keeps the first of multiple buckets with the same edges.
func (s *Source) groups(day int64) (list []group) {
	for _, b := range s.blocks {
		if b.meta.MinTime > day+dayMS || b.until() <= day+1 {
			continue
		}
		i := slices.IndexFunc(list, func(g group) bool {
			return g.resolution == b.resolution && labels.Equal(g.external, b.external)
		})
		if i < 0 {
			i = len(list)
			list = append(list, group{external: b.external, resolution: b.resolution})
		}
		list[i].blocks = append(list[i].blocks, b)
	}
	slices.SortFunc(list, func(a, b group) int {
		return cmp.Or(
			cmp.Compare(a.resolution, b.resolution), strings.Compare(a.external.String(), b.external.String()),
		)
	})
	return list
}

// closeUntil closes the blocks that have no data after a time.
func (s *Source) closeUntil(t int64) {
	for _, b := range s.blocks {
		if b.until() <= t+1 {
			_ = b.close() // The block is read-only.
		}
	}
}
