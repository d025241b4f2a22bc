package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rowWriter collects sealed rows of series, with their labels and names, and writes them together. All slotSealers of a
// pass and their roller share one rowWriter.
type rowWriter struct {
	s     *Store
	ctx   context.Context
	begun time.Time // when reading the samples began
	work  Work      // one of the slots, named in errors
	// namesFirst makes names durable before rows. It is set if the slot already has a commit record, because readers
	// may then search its rows by their names.
	namesFirst bool
	// remade is true if the rows are rollups that are recomputed because of deletes. They are written as rows rather
	// than pages, even if their series' labels are written again, because cleaning would rewrite entries of pages as
	// rows; see removeSuperseded.
	remade bool
	// before is called before each write, unless it is nil. If it returns an error, nothing is written.
	before func() error
	// failed is the error of a row that couldn't be added; the next write returns it.
	failed error
	// expiry caches the last result of expiryOf, because most rows have the same window and class as the previous row.
	expiry struct {
		of      classRows
		expires int64
		ok      bool
	}

	// encoded caches the values of labels rows, which are the same at all resolutions.
	encoded map[*Series][]byte

	// These fields hold the rows of the next write.
	rows    []rowBatch
	puts    []engine.Mutation // of all rows, batch by batch
	keys    []engine.Value    // memory for keys of puts
	bytes   int
	catalog []engine.Batch
	named   map[catalogName]bool // the names in catalog
	last    lastNames
	written []seriesLabels                 // the series in rows
	places  map[head.Written]*head.Written // locations of labels rows, shared by series
}

// classRows identifies the rows of a class in a tenant's window.
type classRows struct {
	tenant        string
	class, window int64
}

// seriesLabels is the labels row of a series at a resolution.
type seriesLabels struct {
	series *Series
	res    rollup.Resolution
	where  head.WrittenRow
}

func newRowWriter(ctx context.Context, s *Store, w Work) *rowWriter {
	return &rowWriter{s: s, ctx: ctx, work: w, begun: s.opts.Now()}
}

// expiryOf returns the expiry of a series' rows in a window. ok is false if the window has expired, or if its expiry
// can't be read. If raw rows outlast rollups, because the retention was raised, the rollup window may be expired; its
// rollups are then skipped. In all other cases in which ok is false, the next write fails.
func (x *rowWriter) expiryOf(c *collectedSeries, res rollup.Resolution, window int64) (expires int64, ok bool) {
	if !x.s.retention.Expires() {
		return 0, true
	}
	of := classRows{c.series.Tenant(), c.class, window}
	if last := &x.expiry; last.ok && last.of == of {
		return last.expires, true
	}
	expires, err := x.s.retention.Expiry(x.ctx, of.tenant, of.class, of.window)
	if err != nil && (res == rollup.Raw || !errors.Is(err, retention.ErrWindowOver)) {
		x.failed = cmp.Or(x.failed, err)
	}
	x.expiry.of, x.expiry.expires, x.expiry.ok = of, expires, err == nil
	return expires, err == nil
}

// addLabels adds the labels row and the names of a series, unless this process has already written them.
func (x *rowWriter) addLabels(c *collectedSeries, res rollup.Resolution, window int64) {
	s := c.series
	where := head.WrittenRow{Window: window, At: c.location(res), Some: true}
	if s.WrittenAt(res) == where {
		return
	}
	if n := len(x.written); n > 0 && x.written[n-1] == (seriesLabels{s, res, where}) {
		return
	}
	if !x.addRow(
		c, res, window, x.s.period.WindowEnd(window)*1000-1, format.LabelsKey(res, s.IDText()), x.labelsRow(s),
	) {
		return
	}
	x.addNames(s, window)
	x.written = append(x.written, seriesLabels{s, res, where})
}

// maxEncoded bounds the number of series in encoded.
const maxEncoded = 1 << 14

// labelsRow returns the value of a series' labels row.
func (x *rowWriter) labelsRow(s *Series) []byte {
	row := x.encoded[s]
	if row == nil {
		row = format.AppendLabels(make([]byte, 0, format.LabelsSize(s.Labels())), s.Labels())
		if len(x.encoded) >= maxEncoded {
			clear(x.encoded)
		}
		if x.encoded == nil {
			x.encoded = map[*Series][]byte{}
		}
		x.encoded[s] = row
	}
	return row
}

// addRow adds a row of a series to the next write. It returns false if expiryOf does.
func (x *rowWriter) addRow(
	c *collectedSeries, res rollup.Resolution, window, timestamp int64, key engine.Key, value []byte,
) bool {
	expires, ok := x.expiryOf(c, res, window)
	if !ok {
		return false
	}
	s, at := c.series, c.location(res)
	n := len(x.rows)
	if n == 0 || !x.rows[n-1].isOf(format.TableOf(res), window, s, at) ||
		x.rows[n-1].bytes+len(value) > engine.MaxBatch*3/4 {
		x.rows = append(x.rows, rowBatch{series: s, at: at, Batch: engine.Batch{
			Table: format.TableOf(res), Partition: format.SeriesPartition(window, s.Tenant(), s.Metric(), at),
			Expires: expires,
		}, from: len(x.puts)})
	}
	b := &x.rows[len(x.rows)-1]
	x.puts = append(x.puts, engine.Mutation{Clustering: x.copyKey(key), Timestamp: timestamp, Value: value})
	b.bytes += len(value) + 128
	x.bytes += len(value) + 64
	return true
}

// minKeyValues is the initial capacity of keys, in fields.
const minKeyValues = 1 << 10

// copyKey copies a key into keys and returns the copy. If keys is full, it allocates a slice of twice the capacity;
// the keys of earlier rows remain in the previous slice. After some writes, one slice holds all keys of a write.
func (x *rowWriter) copyKey(key engine.Key) engine.Key {
	if cap(x.keys)-len(x.keys) < len(key) {
		x.keys = make([]engine.Value, 0, max(minKeyValues, 2*cap(x.keys)))
	}
	from := len(x.keys)
	x.keys = append(x.keys, key...)
	return x.keys[from:len(x.keys):len(x.keys)]
}

// rowBatch is a batch of rows of a metric. Its mutations are set just before it is written.
type rowBatch struct {
	engine.Batch
	from   int     // index of its first mutation in puts
	series *Series // one series of the metric
	at     format.ClassShard
	bytes  int
}

func (b *rowBatch) isOf(t *engine.Table, window int64, s *Series, at format.ClassShard) bool {
	return b.Table == t && b.Partition[0].Int == window && b.at == at &&
		b.series.TenantOfHead() == s.TenantOfHead() && b.series.Metric() == s.Metric()
}

// lastNames holds the labels of the last series whose names were added. Series of a metric usually differ in few
// labels, so most names don't have to be added again.
type lastNames struct {
	tenant string
	window int64
	labels []labels.Label // the last value of each name
}

// resetFor resets the labels when the tenant or window changes.
func (n *lastNames) resetFor(tenant string, window int64) {
	if n.tenant != tenant || n.window != window {
		n.tenant, n.window, n.labels = tenant, window, n.labels[:0]
	}
}

// replaceLabel stores l in place of the previous label with the same name. same is true if the label is unchanged.
// named is true if there was a label with this name.
func (n *lastNames) replaceLabel(l labels.Label) (same, named bool) {
	for i := range n.labels {
		if n.labels[i].Name == l.Name {
			same = n.labels[i].Value == l.Value
			n.labels[i].Value = l.Value
			return same, true
		}
	}
	n.labels = append(n.labels, l)
	return false, false
}

// addNames adds the catalog rows of a series' metric and labels, except rows that this process has already written in
// this window.
func (x *rowWriter) addNames(s *Series, window int64) {
	tenant := s.Tenant()
	row := engine.Batch{Table: engine.Catalog}
	if err := x.s.retention.SetExpiry(x.ctx, &row, tenant, retention.Shared, window); err != nil {
		if !errors.Is(err, retention.ErrWindowOver) {
			x.failed = cmp.Or(x.failed, err)
		}
		return
	}
	x.last.resetFor(tenant, window)
	add := func(kind int64, label, value string) {
		name := x.s.catalog.hashOf(window, tenant, kind, label, value)
		if x.named[name] || x.s.catalog.isWritten(name) {
			return
		}
		row.Partition = format.CatalogPartition(window, tenant, kind, label)
		row.Mutations = []engine.Mutation{{
			Clustering: engine.Key{engine.Text(value)}, Timestamp: x.s.period.WindowEnd(window)*1000 - 1,
			Value: []byte{1},
		}}
		x.addName(name, row)
		x.bytes += len(label) + len(value) + 128
	}
	s.Labels().Range(func(l labels.Label) {
		same, named := x.last.replaceLabel(l)
		if same {
			return
		}
		if l.Name == labels.MetricName {
			add(format.CatalogMetric, "", l.Value)
		}
		if !named {
			add(format.CatalogLabel, "", l.Name)
		}
		add(format.CatalogValue, l.Name, l.Value)
	})
}

// addName adds the catalog row of a name.
func (x *rowWriter) addName(name catalogName, row engine.Batch) {
	if x.named == nil {
		x.named = map[catalogName]bool{}
	}
	x.named[name] = true
	x.catalog = append(x.catalog, row)
}

// checkDeletesFresh returns an error if a seal has taken so long that its list of deletes may be incomplete. Tombstones
// created since the seal started are kept for at least deleteRests. After that time, a tombstone may have been removed,
// so the seal could write samples that were deleted.
func (x *rowWriter) checkDeletesFresh() error {
	if took := membership.Elapsed(x.begun, x.s.opts.Now()); took > deleteRests/2 {
		return fmt.Errorf(
			"%w: sealing slot %d, partition %d started %v ago; it restarts", engine.ErrUnavailable, x.work.Slot,
			x.work.Partition, took.Round(time.Second),
		)
	}
	return nil
}

// write writes the rows that were added.
func (x *rowWriter) write() error {
	if err := cmp.Or(x.failed, x.checkDeletesFresh()); err != nil {
		return err
	}
	if len(x.rows) == 0 && len(x.catalog) == 0 {
		return nil
	}
	if x.before != nil {
		if err := x.before(); err != nil {
			return err
		}
	}
	batches := x.catalog
	if x.namesFirst && len(batches) > 0 {
		if err := x.s.eng.Write(x.ctx, batches); err != nil {
			return fmt.Errorf("storage: writing names of slot %d, partition %d: %w", x.work.Slot, x.work.Partition, err)
		}
		batches = nil
	}
	for i, to := len(x.rows)-1, len(x.puts); i >= 0; i-- {
		b := &x.rows[i]
		b.Mutations, to = x.puts[b.from:to:to], b.from
	}
	for i := range x.rows {
		batches = append(batches, x.rows[i].Batch)
	}
	write := x.s.rows.Write
	if x.remade {
		write = x.s.rows.WriteRows
	}
	if err := write(x.ctx, batches); err != nil {
		return fmt.Errorf(
			"storage: writing sealed rows of slot %d, partition %d: %w", x.work.Slot, x.work.Partition, err,
		)
	}
	for _, w := range x.written {
		x.recordLabels(w)
	}
	x.s.catalog.add(x.named)
	clear(x.named)
	clear(x.rows)
	clear(x.puts)
	clear(x.keys)
	x.keys = x.keys[:0]
	x.rows, x.puts, x.catalog, x.bytes, x.written = x.rows[:0], x.puts[:0], nil, 0, x.written[:0]
	return nil
}

// recordLabels records where a series' labels row was written.
func (x *rowWriter) recordLabels(w seriesLabels) {
	at := w.series.Written()
	at[w.res] = w.where
	shared := x.places[at]
	if shared == nil {
		if x.places == nil {
			x.places = map[head.Written]*head.Written{}
		}
		kept := at // Taking the address of at would allocate in every call.
		shared = &kept
		x.places[at] = shared
	}
	w.series.SetWritten(shared)
}

// catalogMemory caches which catalog rows this process has written, so that a row is written once per window instead of
// once per seal. When the cache is full, it is cleared.
type catalogMemory struct {
	mu   sync.Mutex
	seed maphash.Seed
	seen map[catalogName]struct{}
}

// maxCatalogMemory bounds the number of rows in catalogMemory.
const maxCatalogMemory = 1 << 20

// catalogName is the hash of a catalog row: of its window, tenant, kind, label and value.
type catalogName [2]uint64

// hashOf returns the hash of a catalog row.
func (m *catalogMemory) hashOf(window int64, tenant string, kind int64, label, value string) catalogName {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seed, m.seen = maphash.MakeSeed(), map[catalogName]struct{}{}
	}
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.WriteString(tenant)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(label)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(value)
	return catalogName{h.Sum64(), uint64(window)<<2 | uint64(kind)}
}

// isWritten reports whether the row was written.
func (m *catalogMemory) isWritten(name catalogName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.seen[name]
	return ok
}

// removeWindow removes the names of a window.
func (m *catalogMemory) removeWindow(window int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.seen, func(name catalogName, _ struct{}) bool { return name[1]>>2 == uint64(window)<<2>>2 })
}

// add records that the rows with these names are written. The rows must be durable, because seals of other partitions
// won't write them again.
func (m *catalogMemory) add(names map[catalogName]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen)+len(names) > maxCatalogMemory {
		clear(m.seen)
	}
	for name := range names {
		m.seen[name] = struct{}{}
	}
}
