package relabeling

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// rig is a store with rules for incoming samples.
type rig struct {
	t     testing.TB
	eng   *pebble.Engine
	store *storage.Store
	live  *Live
	now   int64
}

func newRig(t testing.TB, rules string) *rig {
	r := &rig{t: t, eng: storagetest.Pebble(t), live: NewLive(prometheus.NewRegistry()), now: time.Now().UnixMilli()}
	r.store = storagetest.Open(t, r.eng)
	r.live.OnChange(r.store.ClearAliases)
	r.set(rules)
	return r
}

func (r *rig) set(rules string) {
	table, err := Parse([]byte(rules))
	require.NoError(r.t, err)
	r.live.Set(table)
}

func (r *rig) intake(tenant string) *adapter.Intake {
	return adapter.NewIntake(context.Background(), tenant, func(tenant string) adapter.Batch {
		return r.live.WrapBatch(tenant, r.store.NewBatch(tenant))
	})
}

// send stores one sample for each series, with its index as value, and returns the errors.
func (r *rig) send(tenant string, series ...string) (errs []error) {
	in := r.intake(tenant)
	for i, text := range series {
		errs = append(errs, in.Float(parse(r.t, text), r.now, 0, float64(i)))
	}
	require.NoError(r.t, in.Commit())
	return errs
}

// parse parses labels of the form name,label=value,…
func parse(t testing.TB, text string) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	for i, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			require.Zero(t, i)
			name, value = labels.MetricName, part
		}
		b.Set(name, value)
	}
	return b.Labels()
}

// stored returns a tenant's series with their values.
func (r *rig) stored(tenant string) (list []string) {
	found, err := r.store.Select(context.Background(), query.Query{
		Tenant: tenant, MinT: r.now - 1000, MaxT: r.now + 1000,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")}, Sorted: true,
	})
	require.NoError(r.t, err)
	for _, s := range found {
		var samples chunk.Samples
		require.NoError(r.t, s.Samples(&samples))
		list = append(list, fmt.Sprint(s.Labels.String(), " ", samples.V))
	}
	return list
}

const exampleRules = `
write_relabel_configs:
- {source_labels: [__name__], regex: go_.*, action: drop}
- {source_labels: [__name__], regex: old_(.*), target_label: __name__, replacement: new_$1}
- {regex: pod, action: labeldrop}
- {source_labels: [kill], regex: name, target_label: __name__, replacement: ""}
- {source_labels: [kill], regex: all, action: keep}
tenants:
  free: {}
`

// TestBatch checks that rules have the same effect on series when they are unknown and when they are known.
func TestBatch(t *testing.T) {
	r := newRig(t, strings.Replace(exampleRules, "regex: all, action: keep", `regex: "yes", action: drop`, 1))
	series := []string{
		"go_gc,job=a", "old_x,job=a", "up,job=a,pod=1", "up,job=a,pod=2", "up,job=b", "bad,kill=name", "up,kill=yes",
	}
	for range 2 {
		errs := r.send("t", series...)
		for i, want := range []error{adapter.ErrDropped, nil, nil, nil, nil, nil, adapter.ErrDropped} {
			if i != 5 {
				require.Equal(t, want, errs[i], series[i])
			}
		}
		var rejected *adapter.RejectedError
		require.ErrorAs(t, errs[5], &rejected, "a series without a name is rejected")
		require.Equal(t, storage.ReasonMissingMetricName, rejected.Reason)
		// Of two samples of one series at the same time, the larger value is kept, in any order.
		require.Equal(t, []string{
			`{__name__="new_x", job="a"} [1]`, `{__name__="up", job="a"} [3]`, `{__name__="up", job="b"} [4]`,
		}, r.stored("t"))
	}
	status := r.live.Status("t")
	require.False(t, status.Own)
	require.Equal(t, []int64{2, 0, 0, 0, 2}, droppedBy(status))
	require.Empty(t, droppedBy(r.live.Status("free")))
	require.Equal(t, []int64{0, 0, 0, 0, 0}, droppedBy(r.live.Status("other")), "no tenant sees what another one sent")
	require.NoError(t, testutil.CollectAndCompare(r.live, strings.NewReader(`
# HELP cassia_relabel_dropped_samples_total Samples and histograms dropped by relabeling rules. rules is the tenant that the rules belong to, or empty for rules of all tenants; rule is the number of the rule, from 1.
# TYPE cassia_relabel_dropped_samples_total counter
cassia_relabel_dropped_samples_total{rule="1",rules=""} 2
cassia_relabel_dropped_samples_total{rule="2",rules=""} 0
cassia_relabel_dropped_samples_total{rule="3",rules=""} 0
cassia_relabel_dropped_samples_total{rule="4",rules=""} 0
cassia_relabel_dropped_samples_total{rule="5",rules=""} 2
`), "cassia_relabel_dropped_samples_total"))

	r.send("free", series...)
	require.Len(t, r.stored("free"), len(series))
}

func droppedBy(s Status) (list []int64) {
	for _, rule := range s.Rules {
		list = append(list, rule.Samples)
	}
	return list
}

// TestDefineRemembersItsOwnAlias checks that Define caches a dropped series under the alias that it is given, not under
// the alias of the last Lookup: otherwise the series of the last Lookup would be dropped.
func TestDefineRemembersItsOwnAlias(t *testing.T) {
	r := newRig(t, "- {source_labels: [__name__], regex: a, action: drop}")
	b := r.live.WrapBatch("t", r.store.NewBatch("t"))
	defer b.Release()
	kept, lost := labels.FromStrings("__name__", "b"), labels.FromStrings("__name__", "a")
	_, ok := b.Lookup([]byte("b"))
	require.False(t, ok)
	series, err := b.Define([]byte("a"), lost)
	require.NoError(t, err)
	require.ErrorIs(t, b.Float(series, r.now, 0, 1), adapter.ErrDropped)
	_, ok = b.Lookup([]byte("b"))
	require.False(t, ok, "nothing is known of it yet")
	series, err = b.Define([]byte("b"), kept)
	require.NoError(t, err)
	require.NoError(t, b.Float(series, r.now, 0, 2))
	series, ok = b.Lookup([]byte("a"))
	require.True(t, ok)
	require.ErrorIs(t, b.Float(series, r.now, 0, 3), adapter.ErrDropped)
	require.NoError(t, b.Commit(t.Context()))
	require.Len(t, r.stored("t"), 1)
}

// TestEverythingDropped checks that requests that contain only dropped samples are accepted.
func TestEverythingDropped(t *testing.T) {
	r := newRig(t, `[{regex: .*, action: labeldrop}]`)
	require.Equal(t, []error{adapter.ErrDropped, adapter.ErrDropped}, r.send("t", "a", "b,c=d"))
	require.Empty(t, r.stored("t"))
	require.Equal(t, []int64{2}, droppedBy(r.live.Status("t")), "a series without labels is dropped, as in Prometheus")

	in := r.intake("t")
	h := &histogram.Histogram{Count: 1, Sum: 1, ZeroCount: 1}
	require.Equal(t, adapter.ErrDropped, in.Histogram(parse(t, "a"), r.now, 0, h, nil))
	require.Equal(t, adapter.ErrDropped, in.Exemplar(parse(t, "a"), exemplar.Exemplar{Ts: r.now}))
	require.NoError(t, in.Commit())
	require.EqualValues(t, 3, r.live.Status("t").Rules[0].Samples)
	require.EqualValues(t, 1, r.live.Status("t").Rules[0].Exemplars)
}

// TestReload checks that new rules apply at once although the results of the former rules are cached.
func TestReload(t *testing.T) {
	r := newRig(t, ``)
	send := func(want ...string) {
		t.Helper()
		r.now += 60_000
		r.send("t", "a,pod=1", "b,pod=2")
		got := r.stored("t")
		require.Equal(t, want, got)
	}
	plain := []string{`{__name__="a", pod="1"} [0]`, `{__name__="b", pod="2"} [1]`}
	send(plain...)
	r.set(`[{regex: pod, action: labeldrop}]`)
	send(`{__name__="a"} [0]`, `{__name__="b"} [1]`)
	r.set(`[{source_labels: [__name__], regex: a, action: drop}]`)
	send(plain[1])
	before := r.live.Status("t").Rules[0].Samples
	r.set(`[{source_labels: [__name__], regex: a, action: drop}]`)
	send(plain[1])
	require.Equal(t, before+1, r.live.Status("t").Rules[0].Samples, "rules that haven't changed go on counting")
	r.set(`[{regex: pod, action: labeldrop}]`)
	send(`{__name__="a"} [0]`, `{__name__="b"} [1]`)
	r.set(``)
	send(plain...)
}

// TestManyNamesOfOneSeries checks that the store keeps a bounded number of aliases, and finds the right series after it
// has evicted them.
func TestManyNamesOfOneSeries(t *testing.T) {
	r := newRig(t, `[{regex: pod, action: labeldrop}]`)
	for i := range 3000 {
		require.Equal(t, []error{nil, nil}, r.send("t", fmt.Sprintf("a,pod=%d", i), "b"))
	}
	require.Equal(t, []string{`{__name__="a"} [0]`, `{__name__="b"} [1]`}, r.stored("t"))
}

func TestMetadata(t *testing.T) {
	table, err := Parse([]byte(`
- {source_labels: [job], regex: node, action: keep}
- {source_labels: [__name__], regex: go_.*, action: drop}
- {source_labels: [__name__], regex: .*_bucket, action: drop}
- {source_labels: [__name__], regex: old_(.*), target_label: __name__, replacement: new_$1}
- {source_labels: [__name__, job], regex: .*, action: drop}
`))
	require.NoError(t, err)
	live := NewLive(nil)
	as, ok := live.Metadata("t", "go_gc", "gauge")
	require.Equal(t, "go_gc", as, "there are no rules yet")
	require.True(t, ok)
	live.Set(table)
	for _, c := range []struct{ family, kind, want string }{
		{"go_gc", "gauge", ""}, {"up", "gauge", "up"}, {"old_x", "counter", "new_x"},
		{"old_x_total", "counter", "new_x_total"}, {"old_seconds", "histogram", "new_seconds"},
		{"x_bucket", "gauge", ""}, {"x", "histogram", "x"}, {"go_x", "histogram", ""},
	} {
		as, ok := live.Metadata("t", c.family, c.kind)
		require.Equal(t, c.want, as, c)
		require.Equal(t, c.want != "", ok, c)
	}
}

func TestDroppedCache(t *testing.T) {
	c := newDroppedCache(shardCount * 8)
	key := func(i int) droppedKey { return droppedKey{uint64(i), uint64(i) * 7} }
	for i := range 10_000 {
		c.add(key(i), i%50)
		c.add(key(0), 7)
		rule, ok := c.get(key(i))
		require.True(t, ok)
		require.Equal(t, map[bool]int{true: 7, false: i % 50}[i == 0], rule)
	}
	n := 0
	for i := range c.shards {
		n += len(c.shards[i].newer) + len(c.shards[i].older)
	}
	require.LessOrEqual(t, n, shardCount*8)
	_, ok := c.get(droppedKey{0, 1})
	require.False(t, ok, "other rules")
}

// BenchmarkBatch adds a sample to each of 2,000 known series in a real store: without rules, and with ten rules that
// keep all of them, change all of them, or drop half of them.
func BenchmarkBatch(b *testing.B) {
	rules := strings.Repeat("- {source_labels: [__name__], regex: no_.*, action: drop}\n", 9)
	for _, c := range []struct{ name, rules string }{
		{"none", ""},
		{"keeping", rules + "- {source_labels: [__name__], regex: none, action: drop}\n"},
		{"changing", rules + "- {regex: cluster, action: labeldrop}\n"},
		{"dropping", rules + "- {source_labels: [__name__], regex: \".*[02468]\", action: drop}\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, c.rules)
			var aliases [][]byte
			var all []labels.Labels
			for i := range 2000 {
				ls := labels.FromStrings(labels.MetricName, fmt.Sprintf("node_cpu_seconds_total_%d", i%40),
					"cluster", "eu", "cpu", fmt.Sprint(i/40),
					"instance", fmt.Sprintf("host-%d.example.com:9100", i%100), "job", "node", "mode", "user")
				all, aliases = append(all, ls), append(aliases, slices.Clone(adapter.AppendAlias(nil, ls)))
			}
			add := func(commit bool) {
				batch := r.live.WrapBatch("t", r.store.NewBatch("t"))
				for i, alias := range aliases {
					s, ok := batch.Lookup(alias)
					if !ok {
						var err error
						if s, err = batch.Define(alias, all[i]); err != nil {
							b.Fatal(err)
						}
					}
					if err := batch.Float(s, r.now, 0, 1); err != nil && err != adapter.ErrDropped {
						b.Fatal(err)
					}
				}
				if commit {
					require.NoError(b, batch.Commit(context.Background()))
				} else {
					batch.Release()
				}
			}
			add(true)
			b.ReportAllocs()
			for b.Loop() {
				add(false)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/sample")
		})
	}
}
