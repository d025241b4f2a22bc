package ha

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// namedSeries is a series with only a name.
type namedSeries struct{ name string }

func (s *namedSeries) Labels() labels.Labels { return labels.FromStrings(labels.MetricName, s.name) }

type sample struct {
	t int64
	v float64
}

// testHost collects the stored samples of all processes.
type testHost struct {
	eng    engine.Engine
	stored map[string][]sample
}

func (h *testHost) HeldWriter(string) HeldWriter {
	return &testWriter{h: h, added: map[string][]sample{}}
}

func (h *testHost) DeleteHeld(ctx context.Context, at ClusterName, rows []HeldID) error {
	var batches []engine.Batch
	for i := range rows {
		batches = append(batches, engine.Batch{
			Table: engine.Held, Partition: format.HeldPartition(at.Tenant, at.Cluster, rows[i].Epoch),
			Mutations: []engine.Mutation{{
				Op: engine.Delete, Clustering: rows[i].Key(), Timestamp: HeldTimestamp,
			}},
		})
	}
	return h.eng.Write(ctx, batches)
}

func (h *testHost) add(samples map[string][]sample) (n int) {
	for name, list := range samples {
		h.stored[name] = append(h.stored[name], list...)
		n += len(list)
	}
	clear(samples)
	return n
}

// testWriter stores held samples in the host.
type testWriter struct {
	h     *testHost
	added map[string][]sample
}

func (w *testWriter) Prepare(context.Context) (release func(), err error) { return func() {}, nil }

func (w *testWriter) Add(_ context.Context, row HeldSamples) (added Added, err error) {
	blob, err := row.Value.Unpack()
	if err != nil {
		return Added{Malformed: err}, nil
	}
	sink := testSink{w: w, row: &row}
	var reader format.BlobReader
	if err = reader.Open(blob); err == nil {
		err = reader.Walk(&sink)
	}
	return Added{Samples: sink.taken, Malformed: err}, nil
}

func (w *testWriter) Commit(context.Context) (samples int, err error) { return w.h.add(w.added), nil }

// testSink collects the floats of a held row.
type testSink struct {
	w     *testWriter
	row   *HeldSamples
	names []string
	taken int
}

func (k *testSink) Define(_ uint32, _ string, ls labels.Labels) error {
	k.names = append(k.names, ls.Get(labels.MetricName))
	return nil
}

func (k *testSink) Float(ref uint32, t, _ int64, v uint64) error {
	name := k.names[ref-1]
	newest := int64(math.MinInt64)
	for _, s := range k.w.h.stored[name] {
		if s.t <= k.row.FromMS {
			newest = max(newest, s.t)
		}
	}
	if becomes := k.row.Of(t); becomes == StoreSample || becomes == HoldSample && t > newest {
		k.taken++
		k.w.added[name] = append(k.w.added[name], sample{t, math.Float64frombits(v)})
	}
	return nil
}

func (k *testSink) Histogram(uint32, int64, []byte) error { return nil }
func (k *testSink) Exemplar(uint32, int64, []byte) error  { return nil }

// testBatch has the samples of one request.
type testBatch struct {
	h       *testHost
	samples map[string][]sample
}

func (b *testBatch) Extent(limit int64) Extent {
	x := Extent{MinT: math.MaxInt64, MaxT: math.MinInt64, Newest: math.MinInt64}
	var times []int64
	for _, list := range b.samples {
		for _, s := range list {
			x.Samples++
			times = append(times, s.t)
			x.MinT, x.MaxT = min(x.MinT, s.t), max(x.MaxT, s.t)
			if s.t <= limit {
				x.Newest = max(x.Newest, s.t)
			} else {
				x.Ahead = true
			}
		}
	}
	x.Median = MedianTime(len(times), func(i int) int64 { return times[i] })
	return x
}

func (b *testBatch) Split(of func(t int64) Disposition, held *HeldBuilder) (dropped int) {
	for name, list := range b.samples {
		series := &namedSeries{name}
		b.samples[name] = slices.DeleteFunc(list, func(s sample) bool {
			becomes := of(s.t)
			switch becomes {
			case HoldSample:
				held.Float(series, s.t, 0, math.Float64bits(s.v))
			case DropSample:
				dropped++
			case StoreSample:
			}
			return becomes != StoreSample
		})
	}
	return dropped
}

func (b *testBatch) Commit(context.Context) error { b.h.add(b.samples); return nil }
func (b *testBatch) Release()                     {}

// rig is a set of processes that share an engine and a clock, and receive samples of replicas. Package storage runs a
// similar test with stores.
type rig struct {
	t        *testing.T
	eng      engine.Engine
	now      time.Time
	host     *testHost
	change   func(*Options)
	trackers []*Tracker
	members  []*membership.Member
}

func newRig(t *testing.T, eng engine.Engine, processes int, change func(*Options)) *rig {
	r := &rig{
		t: t, eng: eng, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		host: &testHost{eng: eng, stored: map[string][]sample{}}, change: change,
	}
	for i := range processes {
		r.trackers, r.members = append(r.trackers, nil), append(r.members, nil)
		r.start(i)
	}
	t.Cleanup(func() {
		for i := range r.trackers {
			r.trackers[i].Close()
			r.members[i].Close()
		}
	})
	return r
}

// start starts a process, or restarts it after a crash.
func (r *rig) start(i int) {
	now := func() time.Time { return r.now }
	corrupt := func(table *engine.Table, err error) { r.t.Error(table.Name, err) }
	writer := r.now.Format("150405.000") + string(rune('a'+i)) + "-----"
	require.Len(r.t, writer, engine.IDLen)
	nothing := func(context.Context) error { return nil }
	r.members[i] = membership.New(membership.Options{
		Engine: r.eng, Writer: writer, Shared: true, Now: now, Created: r.now, Corrupt: corrupt,
		Logger: slog.New(slog.DiscardHandler), Still: true,
		State: func(bool) ([]byte, error) { return []byte("{}"), nil }, Learn: nothing, Refresh: nothing,
	})
	require.NoError(r.t, r.members[i].Open(r.t.Context()))
	opts := DefaultOptions()
	opts.Still = true
	if r.change != nil {
		r.change(&opts)
	}
	var err error
	r.trackers[i], err = New(r.t.Context(), Env{
		Engine: r.eng, Member: r.members[i], Writer: writer, Host: r.host, Now: now, MaxAhead: 10 * time.Minute,
		Corrupt: corrupt, Logger: slog.New(slog.DiscardHandler),
	}, opts)
	require.NoError(r.t, err)
}

// advance advances the clock in steps of the interval between passes. In each step all processes send a heartbeat and
// run a pass.
func (r *rig) advance(d time.Duration) {
	step := r.trackers[0].interval()
	for ; d > 0; d -= step {
		r.now = r.now.Add(min(d, step))
		for i := range r.trackers {
			require.NoError(r.t, r.members[i].SendHeartbeat(r.t.Context()))
			r.trackers[i].RunPass(r.t.Context())
		}
	}
}

// send sends a sample of a replica to a process.
func (r *rig) send(process int, cluster, replica string, at time.Time, v float64) error {
	r.t.Helper()
	require.NoError(r.t, r.trackers[process].CheckReplica("default", cluster, replica))
	b := &testBatch{r.host, map[string][]sample{"m": {{at.UnixMilli(), v}}}}
	return r.trackers[process].Commit(r.t.Context(), b, ClusterName{"default", cluster}, replica)
}

// values returns the stored values in time order.
func (r *rig) values() (values []float64) {
	list := slices.Clone(r.host.stored["m"])
	slices.SortFunc(list, func(a, b sample) int { return int(a.t - b.t) })
	for _, s := range list {
		values = append(values, s.v)
	}
	return values
}

// heldRows counts the held rows of a cluster, regardless of the process that owns them.
func (r *rig) heldRows(cluster string) (n int) {
	rows := Rows{Engine: r.eng, Corrupt: func(_ *engine.Table, err error) { r.t.Error(err) }}
	require.NoError(r.t, rows.EachHeld(r.t.Context(), "default", func(of, _ string, _ int64) {
		if of == cluster {
			n++
		}
	}))
	return n
}

func passAll(faultengine.Op) faultengine.Action { return faultengine.Pass() }
