package check

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/damagedblock"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Totals contains the numbers of verified rows and files.
type Totals struct {
	// Metrics and Series are counted once per window, in raw and in rollup windows.
	Blobs, Tenants, Windows, Metrics, Series, Chunks, Samples, Exemplars int
	// Bytes is the encoded size of chunks.
	Bytes int64
	// Rollups is the number of rollup chunks, and RollupBytes is their encoded size.
	Rollups     int
	RollupBytes int64
	// Files is the number of verified files of the engine, and FileBytes is their size. Both are 0 if the files are on
	// servers.
	Files     int
	FileBytes int64
	// DamagedParts is the number of damaged parts of these files. Each damaged part also counts in Problems.
	DamagedParts int
	// Problems is the number of reported problems.
	Problems int
}

// Run verifies the stored rows:
//
//   - Readers look for staged blobs in each slot that has staged blobs.
//   - Blobs and chunks match their checksums.
//   - Keys of chunks match the chunks' time and the hash of their content.
//   - Each series with chunks has labels, which match its id and are in the catalog.
//   - Rollups equal the result of rolling up their sources.
//   - Stored counts of series are correct.
//   - Windows with rows are listed.
//
// Run reports each problem with its row, and unreadable rows with their tenant, metric and time. It also verifies the
// engine's files. A damaged block of a file is one problem, whose text lists the rows in it. Run reads all rows. It
// returns an error if the check couldn't continue. An engine.WorkMeter in the context measures its progress.
func Run(ctx context.Context, env Env, report func(problem string)) (Totals, error) {
	c := &checker{env: env, ctx: ctx, staged: map[int64]bool{}, missing: map[windowOf][]int64{},
		deletes: map[string]format.Tombstones{}, unreadable: unreadable{named: map[string]bool{}}}
	c.report = func(text string, args ...any) {
		c.stats.Problems++
		report(fmt.Sprintf(text, args...))
	}
	defer func() { c.unreadable.reportBlocks(c) }()
	if err := c.reportDamage(c.checkStage()); err != nil {
		return c.stats, err
	}
	tenants, err := env.Tenants(ctx, c.addMissed)
	if err != nil {
		return c.stats, err
	}
	windows := map[string][]windowWork{}
	work := c.filesWork()
	for _, tenant := range tenants {
		found, err := env.Windows(ctx, tenant, c.addMissed)
		if err == nil {
			windows[tenant], err = c.plan(tenant, found)
		}
		if err != nil {
			return c.stats, err
		}
		for _, w := range windows[tenant] {
			work += w.work
		}
	}
	engine.MeterOf(ctx).AddExpected(work)
	for _, tenant := range tenants {
		c.stats.Tenants++
		for _, w := range windows[tenant] {
			check := c.checkWindow
			if format.ResolutionOf(w.window) != rollup.Raw {
				check = c.checkRollupWindow
			}
			done := c.progressWithin(w.work)
			if err := c.reportDamage(check(tenant, w.window, done)); err != nil {
				return c.stats, err
			}
			done(1, 1)
		}
		if err := c.checkUnlisted(tenant); err != nil {
			return c.stats, err
		}
	}
	return c.stats, c.checkFiles()
}

type checker struct {
	env     Env
	ctx     context.Context
	stats   Totals
	report  func(format string, args ...any)
	staged  map[int64]bool // slots with staged samples
	builder labels.ScratchBuilder
	// missing caches the results of unrolledSlots: for each raw window, the slots for which rollups don't include all
	// seals.
	missing map[windowOf][]int64
	// deletes caches the deletes of tenants.
	deletes map[string]format.Tombstones
	unreadable
}

// windowOf identifies a window of a tenant.
type windowOf struct {
	tenant string
	window int64
}

// deletesOf returns the deletes of a tenant that are in force, and caches them.
func (c *checker) deletesOf(tenant string) (format.Tombstones, error) {
	ds, ok := c.deletes[tenant]
	if ok {
		return ds, nil
	}
	ds, err := c.env.Deletes(c.ctx, tenant)
	if err == nil {
		c.deletes[tenant] = ds
	}
	return ds, err
}

// checkWindow checks a raw window. It calls done with the number of checked metrics and the number of all metrics.
func (c *checker) checkWindow(tenant string, window int64, done func(done, all int)) error {
	marks := 0
	for row, err := range c.scan(engine.Range{Table: engine.Sealed,
		Partition: format.SealedPartition(window, tenant), KeysOnly: true}) {
		if err != nil {
			return err
		}
		marks++
		if slot := row.Clustering[0].Int; c.env.Period.RawWindowOfSlot(slot) != window {
			c.report("sealed: %s of tenant %q has a commit record of %s, which isn't part of it",
				c.windowName(window), tenant, c.slotName(slot))
		}
	}
	if marks == 0 {
		return nil
	}
	c.stats.Windows++
	names, err := c.readNames(window, tenant, format.CatalogLabel, "")
	if err != nil {
		return err
	}
	values := map[string]map[string]bool{}
	for name := range names {
		if values[name], err = c.readNames(window, tenant, format.CatalogValue, name); err != nil {
			return err
		}
	}
	metrics, err := c.readNames(window, tenant, format.CatalogMetric, "")
	if err != nil {
		return err
	}
	gaps, checked := c.gaps, 0
	for metric := range metrics {
		c.stats.Metrics++
		if err := c.checkMetric(tenant, window, metric, values); err != nil {
			return err
		}
		checked++
		done(checked, len(metrics))
	}
	if c.gaps > gaps {
		return nil // Some of the counted series are unreadable.
	}
	return c.checkCounts(tenant, window)
}

func (c *checker) readNames(window int64, tenant string, kind int64, label string) (map[string]bool, error) {
	out := map[string]bool{}
	for row, err := range c.scan(engine.Range{Table: engine.Catalog,
		Partition: format.CatalogPartition(window, tenant, kind, label), KeysOnly: true}) {
		if err != nil {
			return nil, err
		}
		out[strings.Clone(row.Clustering[0].Text)] = true
	}
	return out, nil
}

// checkMetric checks the rows of a metric in a raw window, shard by shard.
func (c *checker) checkMetric(tenant string, window int64, metric string, values map[string]map[string]bool) error {
	shards := int64(1)
	value, err := c.env.ShardsRow(c.ctx, window, tenant, metric, c.addMissed)
	if err != nil {
		return err
	}
	if value != nil {
		if shards, err = format.ParseShards(value); err != nil {
			c.report("shards: %s, tenant %q, metric %q: %v", c.windowName(window), tenant, metric, err)
		}
	}
	sealed, gaps := map[slotSeries]*slotChunks{}, c.gaps
	for at := range c.env.Places(tenant, window, shards) {
		if err := c.checkShard(tenant, window, metric, at, values, sealed); err != nil {
			return err
		}
	}
	if c.gaps > gaps {
		return nil // Some sources of the rollups are unreadable.
	}
	return c.reportDamage(c.checkRollups(tenant, window, metric, sealed))
}

// checkShard checks the raw rows of a metric in one class and shard. Labels rows are before chunks, so the labels of a
// series are known when its chunks are read.
func (c *checker) checkShard(tenant string, window int64, metric string, in format.ClassShard,
	values map[string]map[string]bool, sealed map[slotSeries]*slotChunks) error {
	known, deleted := map[string]int64{}, map[string]format.Tombstones{} // known maps series to classes
	all, err := c.deletesOf(tenant)
	if err != nil {
		return err
	}
	classes, err := c.env.ClassesIn(c.ctx, tenant, window)
	if err != nil {
		return err
	}
	var builder labels.ScratchBuilder
	gaps := c.gaps // If labels are unreadable, their series are unknown, which is no further problem.
	for row, err := range c.scan(engine.Range{Table: engine.Raw,
		Partition: format.SeriesPartition(window, tenant, metric, in)}) {
		if err != nil {
			return err
		}
		k := row.Clustering
		at := func(text string, args ...any) {
			c.report("raw: %s, tenant %q, metric %q, class %d, shard %d, series %x%s: %s", c.windowName(window), tenant,
				metric, in.Class(), in.Shard(), k[2].Text, startOf(k[0].Int, k[1].Int), fmt.Sprintf(text, args...))
		}
		switch k[0].Int {
		case format.KindLabels:
			c.stats.Series++
			ls, err := format.ParseLabels(row.Value, metric, &builder)
			if err != nil {
				known[strings.Clone(k[2].Text)] = in.Class()
				at("%v", err)
				continue
			}
			known[strings.Clone(k[2].Text)] = int64(classes.Of(ls)[0]) // A window of raw rows has one list.
			if ds := all.OfSeries(ls); len(ds) > 0 {
				deleted[strings.Clone(k[2].Text)] = ds
			}
			if id := format.SeriesIDOf(ls); id.String() != k[2].Text {
				at("the labels %s belong to series %x", ls, id)
			}
			ls.Range(func(l labels.Label) {
				if !values[l.Name][l.Value] {
					at("the catalog is missing %s=%q", l.Name, l.Value)
				}
			})
		case format.KindChunk:
			c.stats.Chunks++
			c.stats.Bytes += int64(len(row.Value))
			if class, ok := known[k[2].Text]; !ok && c.gaps == gaps {
				at("the chunk belongs to a series without labels")
			} else if ok && class != in.Class() {
				at("the series is in class %d on that day", class)
			}
			c.checkChunk(window, row, at)
			c.addSealed(sealed, row, in.Class(), deleted[k[2].Text])
		case format.KindExemplars:
			if _, ok := known[k[2].Text]; !ok && c.gaps == gaps {
				at("the exemplars belong to a series without labels")
			}
			c.checkExemplars(window, row, at)
		default:
			at("unknown row kind %d", k[0].Int)
		}
	}
	return c.checkFilters(engine.Raw, format.SeriesPartition(window, tenant, metric, in))
}

// checkFilters checks the filters of labels pages, if there are any.
func (c *checker) checkFilters(t *engine.Table, partition engine.Key) error {
	return c.env.Rows.CheckFilters(c.ctx, t, partition, func(err error) {
		if errors.As(err, new(*damagedblock.BlockError)) {
			c.addMissed(c.env.GapOf(&engine.Range{Table: t, Partition: partition}, engine.Damage{Err: err}))
			return
		}
		c.report("%v", err)
	})
}

func (c *checker) checkChunk(window int64, row engine.Row, at func(string, ...any)) {
	var samples chunk.Samples
	raw, err := format.DecodeRawChunk(row.Value, nil, &samples)
	if format.RowVersion(row.Value) != row.Clustering[3].Text && !raw.Cleaned {
		at("the version doesn't match the hash of the chunk")
	}
	if err != nil {
		at("%v", err)
		return
	}
	c.stats.Samples += samples.Len()
	if raw.Data == nil && raw.Cleaned {
		return
	}
	if samples.Len() == 0 {
		at("the chunk is empty")
		return
	}
	minT, maxT := format.TimeBounds(&samples)
	start := row.Clustering[1].Int
	slot := c.env.Period.SlotOf(minT)
	if c.env.Period.SlotOf(maxT) != slot || c.env.Period.SlotStart(slot) != start ||
		c.env.Period.RawWindowOfSlot(slot) != window {
		at("samples from %s to %s are in the wrong row", format.FormatTime(minT), format.FormatTime(maxT))
	}
}

// verifier is implemented by engines whose files this process can verify. VerifyFiles reports each damaged part of a
// file.
type verifier interface {
	VerifyFiles(ctx context.Context, report func(problem error)) (files int, bytes int64, err error)
}

// scan reads rows, and reports unreadable rows.
func (c *checker) scan(rows engine.Range) iter.Seq2[engine.Row, error] {
	rows.Damaged = func(d engine.Damage) { c.addMissed(c.env.GapOf(&rows, d)) }
	return c.env.Rows.Scan(c.ctx, rows)
}

// startOf describes the start of a row in messages. It returns "" for labels rows, which have no start.
func startOf(kind, start int64) string {
	if kind == format.KindLabels {
		return ""
	}
	return ", start " + format.FormatTime(start)
}

// slotName describes a slot by its number and its times. The number can be passed to cassia inspect.
func (c *checker) slotName(slot int64) string {
	return fmt.Sprintf("slot %d (%s to %s)", slot, format.FormatTime(c.env.Period.SlotStart(slot)),
		format.FormatTime(c.env.Period.SlotEnd(slot)))
}

// windowName describes a window as slotName describes a slot.
func (c *checker) windowName(window int64) string {
	start, end := c.env.Period.WindowSpan(window)
	return fmt.Sprintf("window %d (%s to %s)", window, format.FormatTime(start), format.FormatTime(end))
}

// checkFiles verifies the engine's files. It may find damage in rows that no other row refers to.
func (c *checker) checkFiles() (err error) {
	v, ok := engine.As[verifier](c.env.Engine)
	if !ok {
		return nil
	}
	work, added, outer := c.filesWork(), int64(0), engine.MeterOf(c.ctx)
	ctx := engine.WithMeter(c.ctx, engine.NewMeter(func(done, total int64) {
		now := int64(float64(work) * float64(done) / float64(max(1, total)))
		outer.Add(max(0, now-added))
		added = max(added, now)
	}))
	c.stats.Files, c.stats.FileBytes, err = v.VerifyFiles(ctx, func(problem error) {
		c.stats.DamagedParts++
		c.addPart(problem)
	})
	return err
}
