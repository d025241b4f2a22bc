package pebble

import (
	"context"
	"strconv"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/cassia-db/cassia/storage/engine"
)

// metric is a metric of Pebble as a whole.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*pebbledb.Metrics) float64
}

// levelMetric is a metric of one level of the tree. Level 0 is the level to which memtables are flushed.
type levelMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*pebbledb.LevelMetrics) float64
}

func newMetrics() []metric {
	m := func(name, help string, kind prometheus.ValueType, value func(*pebbledb.Metrics) float64) metric {
		return metric{prometheus.NewDesc("cassia_pebble_"+name, help, nil, nil), kind, value}
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	return []metric{
		m("obsolete_bytes",
			"Bytes of obsolete files that are not deleted yet, for example because scans still use them.", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.Table.ObsoleteSize + m.Table.ZombieSize) }),
		m("deleted_bytes", "Estimated bytes of deleted data that compactions will free.",
			gauge, func(m *pebbledb.Metrics) float64 {
				return float64(m.Table.Garbage.PointDeletionsBytesEstimate +
					m.Table.Garbage.RangeDeletionsBytesEstimate)
			}),
		m("compactions_total", "Completed Pebble compactions.", counter,
			func(m *pebbledb.Metrics) float64 { return float64(m.Compact.Count) }),
		m("compactions_failed_total", "Pebble compactions that failed.", counter,
			func(m *pebbledb.Metrics) float64 { return float64(m.Compact.FailedCount) }),
		m("compaction_seconds_total", "Total duration of Pebble compactions in seconds, summed over concurrent ones.",
			counter, func(m *pebbledb.Metrics) float64 { return m.Compact.Duration.Seconds() }),
		m("compaction_debt_bytes", "Estimated bytes that Pebble still has to compact (compaction debt).", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.Compact.EstimatedDebt) }),
		m("compactions_running", "Pebble compactions in progress.", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.Compact.NumInProgress) }),
		m("flushes_total", "Memtables flushed to files.", counter,
			func(m *pebbledb.Metrics) float64 { return float64(m.Flush.Count) }),
		m("memtable_bytes", "Bytes allocated for memtables, including those that scans still use.", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.MemTable.Size + m.MemTable.ZombieSize) }),
		m("memtables", "Memtables, including the active one.", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.MemTable.Count) }),
		m("wal_bytes", "Bytes of the Pebble WAL that the next start would replay.", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.WAL.Size) }),
		m("wal_written_bytes_total", "Bytes written to the Pebble WAL.", counter,
			func(m *pebbledb.Metrics) float64 { return float64(m.WAL.BytesWritten) }),
		m("block_cache_bytes", "Bytes of decompressed blocks in the block cache.", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.BlockCache.Size) }),
		m("block_cache_hits_total", "Block cache hits.", counter,
			func(m *pebbledb.Metrics) float64 { return float64(m.BlockCache.Hits) }),
		m("block_cache_misses_total", "Block cache misses: blocks that were read and decompressed.", counter,
			func(m *pebbledb.Metrics) float64 { return float64(m.BlockCache.Misses) }),
		m("tombstones", "Approximate number of tombstones in the LSM tree.", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.Keys.TombstoneCount) }),
		m("iterators", "Open iterators of Pebble files.", gauge,
			func(m *pebbledb.Metrics) float64 { return float64(m.TableIters) }),
	}
}

func newLevelMetrics() []levelMetric {
	m := func(name, help string, kind prometheus.ValueType, value func(*pebbledb.LevelMetrics) float64) levelMetric {
		return levelMetric{prometheus.NewDesc("cassia_pebble_level_"+name, help, []string{"level"}, nil), kind, value}
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	return []levelMetric{
		m("bytes", "Bytes of files per level of the LSM tree.", gauge,
			func(l *pebbledb.LevelMetrics) float64 { return float64(l.TablesSize) }),
		m("files", "Files per level of the LSM tree.", gauge,
			func(l *pebbledb.LevelMetrics) float64 { return float64(l.TablesCount) }),
		m("sublevels",
			"Sorted runs per level of the LSM tree: the maximum number of files a read examines in the level.", gauge,
			func(l *pebbledb.LevelMetrics) float64 { return float64(l.Sublevels) }),
		m("written_bytes_total", "Bytes written to a level of the LSM tree by flushes, compactions and seals.", counter,
			func(l *pebbledb.LevelMetrics) float64 {
				return float64(l.TableBytesFlushed + l.TableBytesCompacted + l.TableBytesIngested)
			}),
		m("read_bytes_total", "Bytes read by compactions into a level of the LSM tree.", counter,
			func(l *pebbledb.LevelMetrics) float64 { return float64(l.TableBytesRead) }),
	}
}

// collector exports Pebble's metrics to Prometheus.
type collector struct {
	metrics   []metric
	levels    []levelMetric
	fsync     *prometheus.Desc
	tables    *prometheus.Desc
	space     *prometheus.Desc
	disk      *prometheus.Desc
	available *prometheus.Desc
	failed    *prometheus.Desc
}

func newCollector() *collector {
	return &collector{
		metrics: newMetrics(),
		levels:  newLevelMetrics(),
		fsync:   prometheus.NewDesc("cassia_pebble_wal_fsync_seconds", "Duration of Pebble WAL syncs.", nil, nil),
		tables: prometheus.NewDesc("cassia_pebble_table_bytes",
			"Estimated bytes of a table in Pebble's sorted files. Raw samples are in the table raw, rollups in r5m "+
				"and r1h.",
			[]string{"table"}, nil),
		space: prometheus.NewDesc("cassia_pebble_space_bytes", "Bytes on disk by use: each table (in sorted files), "+
			"log (the WAL), free (to be released soon), and other files. The sum is cassia_pebble_disk_bytes.",
			[]string{"of"}, nil),
		disk: prometheus.NewDesc(
			"cassia_pebble_disk_bytes", "Disk usage of the data directory in bytes, as reported by du.", nil, nil,
		),
		failed: prometheus.NewDesc("cassia_pebble_failed",
			"Whether the store rejects all writes until the process restarts (1) or not (0).", nil, nil),
		available: prometheus.NewDesc("cassia_pebble_disk_available_bytes",
			"Free bytes on the disk of the data directory.", nil, nil),
	}
}

func (e *Engine) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range e.collector.metrics {
		ch <- m.desc
	}
	for _, m := range e.collector.levels {
		ch <- m.desc
	}
	ch <- e.collector.fsync
	ch <- e.collector.tables
	ch <- e.collector.space
	ch <- e.collector.disk
	ch <- e.collector.available
	ch <- e.collector.failed
	for _, c := range e.events.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector. A closed engine has no metrics, a failed one has few.
func (e *Engine) Collect(ch chan<- prometheus.Metric) {
	if e.closed.Load() {
		return
	}
	failed := 1.0
	if m := e.metrics(); m != nil {
		failed = 0
		e.collectPebble(ch, m)
	}
	ch <- prometheus.MustNewConstMetric(e.collector.failed, prometheus.GaugeValue, failed)
	if usage, err := e.fs.GetDiskUsage(e.dir); err == nil {
		ch <- prometheus.MustNewConstMetric(e.collector.available, prometheus.GaugeValue, float64(usage.AvailBytes))
	}
	for _, c := range e.events.collectors() {
		c.Collect(ch)
	}
}

func (e *Engine) collectPebble(ch chan<- prometheus.Metric, m *pebbledb.Metrics) {
	for _, c := range e.collector.metrics {
		ch <- prometheus.MustNewConstMetric(c.desc, c.kind, c.value(m))
	}
	for level := range m.Levels {
		for _, c := range e.collector.levels {
			ch <- prometheus.MustNewConstMetric(c.desc, c.kind, c.value(&m.Levels[level]), strconv.Itoa(level))
		}
	}
	e.collectSpace(ch)
	if fsync, ok := e.collector.fsyncs(m); ok {
		ch <- fsync
	}
}

func (e *Engine) collectSpace(ch chan<- prometheus.Metric) {
	space, err := e.Space(context.Background())
	if err != nil {
		return
	}
	gauge := func(desc *prometheus.Desc, n uint64, of ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), of...)
	}
	sum := uint64(0)
	for of, n := range space {
		gauge(e.collector.space, n, of)
		sum += n
	}
	gauge(e.collector.disk, sum)
	for _, t := range engine.Tables {
		gauge(e.collector.tables, space[t.Name], t.Name)
	}
}

// fsyncs returns Pebble's histogram of sync durations in nanoseconds, with every tenth of its hundred buckets.
func (c *collector) fsyncs(m *pebbledb.Metrics) (prometheus.Metric, bool) {
	var d dto.Metric
	if m.LogWriter.FsyncLatency == nil || m.LogWriter.FsyncLatency.Write(&d) != nil {
		return nil, false
	}
	buckets := map[float64]uint64{}
	for i, b := range d.GetHistogram().GetBucket() {
		if i%10 == 9 {
			buckets[b.GetUpperBound()/1e9] = b.GetCumulativeCount()
		}
	}
	return prometheus.MustNewConstHistogram(
		c.fsync, d.GetHistogram().GetSampleCount(), d.GetHistogram().GetSampleSum()/1e9, buckets,
	), true
}
