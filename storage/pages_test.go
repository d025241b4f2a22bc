package storage

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/rollup"
)

// usualPages writes pages of the size that is used in production.
func usualPages(o *Options) { o.Partitions, o.seams.pageSeries = 2, 0 }

// pageTables lists the tables of pages, by resolution.
var pageTables = []*engine.Table{engine.RawPages, engine.R5mPages, engine.R1hPages}

// pagedPartition identifies a partition with rows of series and their pages.
type pagedPartition struct {
	res rollup.Resolution
	key engine.Key
}

// pagedPartitions lists the partitions of a tenant.
func (ts *testStore) pagedPartitions(tenant string) (list []pagedPartition) {
	ts.t.Helper()
	ctx := context.Background()
	windows, err := ts.readableWindows(ctx, tenant, math.MinInt64, math.MaxInt64)
	require.NoError(ts.t, err)
	for _, w := range windows {
		names, err := ts.metricsIn(ctx, tenant, w)
		require.NoError(ts.t, err)
		for _, metric := range names {
			shards, err := ts.readShards(ctx, w, tenant, metric)
			require.NoError(ts.t, err)
			for at := range format.ClassShards(ts.retention.Classes(), shards) {
				list = append(
					list, pagedPartition{format.ResolutionOf(w), format.SeriesPartition(w, tenant, metric, at)},
				)
			}
		}
	}
	return list
}

// storedPage is a page as stored in the engine.
type storedPage struct {
	pagedPartition

	clustering engine.Key
	value      []byte
}

func (p *storedPage) isLabels() bool { return p.clustering[0].Int == format.KindLabels }

// putPage replaces the value of a page. If value is nil, it removes the page.
func (ts *testStore) putPage(p storedPage, value []byte) {
	ts.t.Helper()
	m := engine.Mutation{Clustering: p.clustering, Timestamp: math.MaxInt64, Value: value}
	if value == nil {
		m.Op = engine.Delete
	}
	require.NoError(ts.t, ts.eng.Write(context.Background(), []engine.Batch{{
		Table: format.PagesOf(p.res), Partition: p.key, Mutations: []engine.Mutation{m},
	}}))
}

// pagesIn returns the pages in some partitions, without the rows that contain their filters.
func (ts *testStore) pagesIn(partitions []pagedPartition) (found []storedPage) {
	ts.t.Helper()
	for _, p := range partitions {
		for row, err := range ts.eng.Scan(
			context.Background(), engine.Range{Table: format.PagesOf(p.res), Partition: p.key},
		) {
			require.NoError(ts.t, err)
			if row.Clustering[0].Int == format.KindFilter {
				break
			}
			key := row.Clustering.Clone()
			for i := range key {
				key[i].Text = strings.Clone(key[i].Text)
			}
			found = append(found, storedPage{p, key, bytes.Clone(row.Value)})
		}
	}
	return found
}

// pageEntry is the content of one series' entry in a data page.
type pageEntry struct {
	res     rollup.Resolution
	series  string
	samples []sample        // of raw
	buckets *rollup.Buckets // of rollups
}

// entriesOf returns all entries in the data pages of a tenant. It requires each page to have its labels page.
func (ts *testStore) entriesOf(tenant string) (found []pageEntry) {
	ts.t.Helper()
	pages := ts.pagesIn(ts.pagedPartitions(tenant))
	series := map[string][]string{} // by table, partition, and version of the labels page
	var builder labels.ScratchBuilder
	for _, p := range pages {
		if !p.isLabels() {
			continue
		}
		for _, value := range ts.valuesOf(p) {
			ls, err := format.ParseLabels(value, p.key[3].Text, &builder)
			require.NoError(ts.t, err)
			name := fmt.Sprint(p.pagedPartition, p.clustering[4].Text)
			series[name] = append(series[name], ls.String())
		}
	}
	for _, p := range pages {
		if p.isLabels() {
			continue
		}
		parsed, err := page.Parse(p.value)
		require.NoError(ts.t, err)
		head := parsed.Head()
		of := series[fmt.Sprint(p.pagedPartition, head.Labels)]
		for i, value := range ts.valuesOf(p) {
			if head.At != nil {
				found = append(found, ts.entry(p.res, of[head.At[i]], value))
			} else {
				found = append(found, ts.entry(p.res, of[i], value))
			}
		}
	}
	return found
}

func (ts *testStore) valuesOf(p storedPage) (values [][]byte) {
	parsed, err := page.Parse(p.value)
	require.NoError(ts.t, err)
	for i := range parsed.Len() {
		value, err := parsed.AppendValue(nil, i)
		require.NoError(ts.t, err)
		values = append(values, value)
	}
	return values
}

func (ts *testStore) entry(res rollup.Resolution, series string, value []byte) pageEntry {
	e := pageEntry{res: res, series: series}
	if res != rollup.Raw {
		e.buckets = &rollup.Buckets{}
		require.NoError(ts.t, rollup.Decode(value, rollup.AllColumns, e.buckets))
		return e
	}
	var samples chunk.Samples
	_, err := format.DecodeRawChunk(value, nil, &samples)
	require.NoError(ts.t, err)
	for i, at := range samples.T {
		e.samples = append(e.samples, sample{at, samples.V[i]})
	}
	return e
}

// countEntries counts the entries of data pages by resolution.
func (ts *testStore) countEntries(tenant string) (n [resolutions]int) {
	for _, e := range ts.entriesOf(tenant) {
		n[e.res]++
	}
	return n
}

// deletedValue is the value of samples that will be deleted. It is higher than all other values.
const deletedValue = 1e6

// requireNoneDeleted requires that no entry of a page contains a deleted sample, or a bucket with one.
func (ts *testStore) requireNoneDeleted(tenant, when string) {
	ts.t.Helper()
	for _, e := range ts.entriesOf(tenant) {
		for _, x := range e.samples {
			require.Less(ts.t, x.v, deletedValue, "%s: %s of %s at %d", when, e.res, e.series, x.t)
		}
		if e.buckets != nil {
			for i, v := range e.buckets.Max {
				require.Less(ts.t, v, deletedValue, "%s: %s of %s until %d", when, e.res, e.series, e.buckets.End[i])
			}
		}
	}
}

// hasDeleted reports, by resolution, whether pages contain deleted samples, or buckets with them.
func (ts *testStore) hasDeleted(tenant string) (has [resolutions]bool) {
	for _, e := range ts.entriesOf(tenant) {
		for _, x := range e.samples {
			has[e.res] = has[e.res] || x.v >= deletedValue
		}
		if e.buckets != nil {
			has[e.res] = has[e.res] || slices.Max(append(e.buckets.Max, 0)) >= deletedValue
		}
	}
	return has
}

// newPagedModel returns a model with the given number of series of each of two metrics, in pages.
func newPagedModel(t *testing.T, series int, change func(*Options)) *deleteModel {
	m := newDeleteModel(t, func(o *Options) {
		usualPages(o)
		if change != nil {
			change(o)
		}
	})
	m.labels = nil
	for i := range 2 * series {
		m.labels = append(m.labels, labels.FromStrings(
			labels.MetricName, []string{"up", "load"}[i%2], "host", fmt.Sprint("h", i/2), "group", fmt.Sprint(i/2%4),
		))
	}
	return m
}

// some writes samples of each series of the given groups. times contains the ages of the samples.
func (m *deleteModel) some(groups string, value float64, times ...time.Duration) {
	for _, ls := range m.labels {
		if !strings.Contains(groups, ls.Get("group")) {
			continue
		}
		var list []sample
		for _, ago := range times {
			list = append(list, sample{m.now.Add(-ago).UnixMilli(), value})
		}
		m.put(ls, list...)
	}
}

// deleteGroup deletes the samples of group 1 from 10 to 8 hours ago, and removes them from the rollups.
func (m *deleteModel) deleteGroup() { m.delete(10*time.Hour, 8*time.Hour, equal("group", "1")) }

const deletedAgo = 9 * time.Hour

// TestCleanedDeleteLeavesNothingInPages deletes samples in pages of all resolutions, in a store that has just written
// them or was restarted, before or after late samples. Once the delete is cleaned, no page may contain a deleted
// sample, and the answers must equal the model.
func TestCleanedDeleteLeavesNothingInPages(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]func(m *deleteModel){
		"at once":        func(m *deleteModel) { m.deleteGroup() },
		"after a start":  func(m *deleteModel) { m.reopen(); m.deleteGroup() },
		"before a start": func(m *deleteModel) { m.deleteGroup(); m.reopen() },
		"rolled up before": func(m *deleteModel) {
			m.deleteGroup()
			require.NoError(m.t, m.WorkOffDeletes(m.t.Context(), "default"))
		},
		"late samples before": func(m *deleteModel) {
			m.reopen()
			m.some("0123", 5, deletedAgo+time.Second)
			require.NoError(m.t, m.SealAll(m.t.Context()))
			m.deleteGroup()
		},
		"late samples after": func(m *deleteModel) {
			m.deleteGroup()
			m.reopen()
			m.some("0123", 5, deletedAgo+time.Second)
			require.NoError(m.t, m.SealAll(m.t.Context()))
			m.reopen()
			m.some("01", 6, deletedAgo+2*time.Second)
			require.NoError(m.t, m.SealAll(m.t.Context()))
		},
		"written again": func(m *deleteModel) {
			m.deleteGroup()
			m.some("1", deletedValue/2, deletedAgo, deletedAgo+15*time.Second)
			m.reopen()
			require.NoError(m.t, m.SealAll(m.t.Context()))
		},
		"a later slot of the day": func(m *deleteModel) {
			m.reopen()
			m.some("0123", 7, 5*time.Hour, 5*time.Hour+time.Minute)
			require.NoError(m.t, m.SealAll(m.t.Context()))
			m.deleteGroup()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newPagedModel(t, 40, nil)
			m.some("023", 3, deletedAgo, deletedAgo+15*time.Second)
			m.some("1", deletedValue, deletedAgo, deletedAgo+15*time.Second)
			m.some("1", 4, deletedAgo+time.Hour+time.Minute)
			require.NoError(t, m.SealAll(t.Context()))
			require.Equal(t, [resolutions]bool{true, true, true}, m.hasDeleted("default"))
			steps(m)
			m.compare("before it is cleaned")
			before := m.countEntries("default")
			require.NoError(t, m.CleanTombstones(t.Context(), "default"))
			for res, n := range m.countEntries("default") {
				require.LessOrEqual(
					t, n, before[res]-20, "what is made anew of 20 series for a delete stays out of pages",
				)
			}
			require.Zero(t, m.openDeletes())
			m.requireNoneDeleted("default", "clean")
			m.compare("clean")
			m.reopen()
			m.compare("clean, after a start")
			m.requireNoneDeleted("default", "after a start")
			n := m.countEntries("default")
			for res := range rollup.Resolution(resolutions) {
				require.Positive(t, n[res], "others stay in pages of %s", res)
			}
		})
	}
}

// stopsAtPages is an engine that fails writes of pages from the nth on. It doesn't fail or count the writes of seals.
type stopsAtPages struct {
	engine.Engine
	left int
}

func (e *stopsAtPages) Write(ctx context.Context, batches []engine.Batch) error {
	if len(batches) > 0 && slices.Contains(pageTables, batches[0].Table) {
		if e.left--; e.left < 0 {
			return engine.ErrUnavailable
		}
	}
	return e.Engine.Write(ctx, batches)
}

// TestCleaningOfPagesIsCutShort stops a process that cleans deletes, after it has rewritten rows and before it rewrites
// their pages, or between two pages. The answers must stay right, and the next process must finish the cleaning.
func TestCleaningOfPagesIsCutShort(t *testing.T) {
	t.Parallel()
	for writes := range 4 {
		m := newPagedModel(t, 40, nil)
		m.some("023", 3, deletedAgo, deletedAgo+15*time.Second)
		m.some("1", deletedValue, deletedAgo, deletedAgo+15*time.Second)
		require.NoError(t, m.SealAll(t.Context()))
		m.deleteGroup()
		m.Store.eng = &stopsAtPages{m.eng, writes}
		m.openRows(&settings{})
		require.ErrorIs(t, m.CleanTombstones(t.Context(), "default"), engine.ErrUnavailable)
		require.Equal(t, 1, m.openDeletes())
		require.NotEqual(t, [resolutions]bool{}, m.hasDeleted("default"))
		m.compare("cut short")
		m.Store.eng = m.eng
		m.reopen()
		m.compare("started again")
		require.NoError(t, m.CleanTombstones(t.Context(), "default"))
		require.Zero(t, m.openDeletes())
		m.requireNoneDeleted("default", "cleaned again")
		m.compare("cleaned again")
	}
}
