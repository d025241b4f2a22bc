package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// dataSet returns random samples of all kinds at some times of each series, over a number of days. Some samples have
// the same time and different values.
func dataSet(rng *rand.Rand, now time.Time, times int, days int64) (set []protocolSendSample) {
	at := func() int64 { return now.UnixMilli() - rng.Int64N(days*24*60*4)*15_000 }
	floats := []string{
		"1", "2", "-0", "0", "stale", "nan:7ff8000000000001", "nan:fff8000000000042", "+Inf", "-Inf", "0.1", "1e300",
	}
	for _, series := range protocolNames {
		for range times {
			x := protocolSendSample{series: series, t: at()}
			for n := 1 + rng.IntN(3); n > 0; n-- {
				x.st = 0
				if rng.IntN(4) == 0 {
					x.st = x.t - rng.Int64N(1000)
				}
				x.hist = nil
				if rng.IntN(4) == 0 {
					x.hist = &protocolHistograms[rng.IntN(len(protocolHistograms))]
				} else {
					x.float, _ = parseProtocolFloat(floats[rng.IntN(len(floats))])
				}
				set = append(set, x)
			}
		}
	}
	for _, series := range protocolNames {
		for range times / 4 {
			n := rng.IntN(3)
			set = append(set, protocolSendSample{
				series: series, t: at(), float: float64(n), trace: fmt.Sprint(n),
			})
		}
	}
	return set
}

// delivery is a way to send a data set.
type delivery struct {
	name    string
	tenant  string
	order   func(rng *rand.Rand, set []protocolSendSample)
	request int     // samples per request
	again   float64 // the share of requests that are sent again, immediately or later
	seal    float64 // the probability of a seal after a request
	restart float64
}

func deliveries() []delivery {
	byTime := func(_ *rand.Rand, set []protocolSendSample) {
		slices.SortStableFunc(set, func(a, b protocolSendSample) int { return int(a.t - b.t) })
	}
	backward := func(rng *rand.Rand, set []protocolSendSample) {
		byTime(rng, set)
		slices.Reverse(set)
	}
	shuffled := func(rng *rand.Rand, set []protocolSendSample) {
		rng.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
	}
	nearly := func(rng *rand.Rand, set []protocolSendSample) {
		byTime(rng, set)
		for i := range len(set) - 20 {
			j := i + rng.IntN(20)
			set[i], set[j] = set[j], set[i]
		}
	}
	return []delivery{
		{name: "in one go", order: byTime, request: 1 << 30},
		{name: "in order", order: byTime, request: 500},
		{name: "in order, sealed between", order: byTime, request: 500, seal: 0.3},
		{name: "nearly in order, twice", order: nearly, request: 100, again: 1, seal: 0.05},
		{name: "backward", order: backward, request: 300, seal: 0.1, restart: 0.1},
		{name: "shuffled", order: shuffled, request: 1000},
		{name: "shuffled, sealed and restarted", order: shuffled, request: 250, again: 0.3, seal: 0.2, restart: 0.2},
		{name: "shuffled, a few at a time", order: shuffled, request: 7, again: 0.1, seal: 0.01, restart: 0.005},
	}
}

func TestDeliveriesGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	set := dataSet(rand.New(rand.NewPCG(5, 5)), now, 400, 3)
	requireSameBytes(t, set, 1, func(t *testing.T) []*testStore {
		ts, _ := openFaultyStore(
			t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() },
			func(o *Options) { o.Partitions = 2 },
		)
		ts.now = now
		return []*testStore{ts}
	})
}

// requireSameBytes delivers a data set in every way to stores that share their data, and reads it through each store.
// Each request is sent to one of the stores. All answers must be equal. Each way uses a tenant of its own, because
// multiple ways may use the same stores. least is the min number of samples per request, except in the last request of
// a delivery.
func requireSameBytes(t *testing.T, set []protocolSendSample, least int, open func(*testing.T) []*testStore) {
	model := newProtocolModel()
	for _, x := range set {
		if x.trace != "" {
			continue
		}
		model.stays(protocolSeries{"ann", x.series}, x.t, x.value())
	}
	var first, firstRolled []byte
	for i, d := range deliveries() {
		t.Run(d.name, func(t *testing.T) {
			stores := open(t)
			d.tenant, d.request = fmt.Sprint("tenant-", i), max(d.request, least)
			rng := rand.New(rand.NewPCG(6, uint64(i)))
			mine := slices.Clone(set)
			d.order(rng, mine)
			d.deliver(stores, rng, mine)
			for range 2 {
				for _, ts := range stores {
					got := ts.answer(d.tenant)
					requireDelivered(t, model, got)
					bytes := append(encodeAnswer(got), ts.exemplarLines(d.tenant)...)
					require.Contains(t, string(bytes), "up/a")
					if first == nil {
						first = bytes
					}
					require.Equal(t, first, bytes)
				}
				require.NoError(t, stores[rng.IntN(len(stores))].SealAll(t.Context())) // before the last answers
			}
			for _, ts := range stores {
				rolled := ts.rollups(d.tenant)
				if firstRolled == nil {
					firstRolled = rolled
				}
				require.Equal(t, firstRolled, rolled, "rollups")
			}
			if len(stores) == 1 { // The other process' head releases the sealed samples in its loop.
				stores[0].requireEmptyHead()
			}
		})
	}
}

func requireDelivered(t *testing.T, model *protocolModel, got map[protocolSeries]*chunk.Samples) {
	list := map[protocolSeries][]protocolSample{}
	for s, samples := range got {
		list[s], _ = flatten(samples)
	}
	for s, byTime := range model.needs("ann") {
		require.Len(t, list[s], len(byTime), "%v", s)
		for _, x := range list[s] {
			require.Equal(t, byTime[x.t], x.v, "%v at %s", s, showTime(x.t))
		}
	}
}

func (d *delivery) deliver(stores []*testStore, rng *rand.Rand, set []protocolSendSample) {
	one := func() *testStore {
		if len(stores) == 1 {
			return stores[0]
		}
		return stores[rng.IntN(len(stores))]
	}
	var sent [][]protocolSendSample
	send := func(samples []protocolSendSample) {
		ts := one()
		b, taken, err := (&protocolSend{tenant: d.tenant, samples: samples}).batch(ts.Store)
		require.NoError(ts.t, err)
		require.Len(ts.t, taken, len(samples))
		require.NoError(ts.t, b.Commit(ts.t.Context()))
	}
	for samples := range slices.Chunk(set, d.request) {
		send(samples)
		sent = append(sent, samples)
		if rng.Float64() < d.again {
			send(sent[rng.IntN(len(sent))])
		}
		if rng.Float64() < d.seal {
			ts := one()
			require.NoError(ts.t, ts.SealAll(ts.t.Context()))
		}
		if rng.Float64() < d.restart {
			one().restart()
		}
	}
}

// restart closes the store and opens it again on the same engine.
func (ts *testStore) restart() {
	require.NoError(ts.t, ts.Store.Close())
	ts.Store = openReady(ts.t, ts.eng, ts.opts)
}

// rollups returns all buckets of a tenant as text. It requires them to match the tenant's samples.
func (ts *testStore) rollups(tenant string) (out []byte) {
	for _, res := range rollup.Resolutions {
		if ts.opts.Shared && res == rollup.OneHour {
			continue // Hours of samples in the head are computed from samples, so their sums are rounded differently.
		}
		q := query.Query{
			Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
			Sorted: true,
		}
		found, err := ts.Select(ts.t.Context(), q)
		require.NoError(ts.t, err)
		require.NotEmpty(ts.t, found)
		q.Resolution = rollup.Raw
		raw, err := ts.Select(ts.t.Context(), q)
		require.NoError(ts.t, err)
		require.Len(ts.t, raw, len(found))
		var b, want, hours rollup.Buckets
		var buf query.BucketBuffers
		for i, s := range found {
			for _, window := range s.Windows() {
				if !ts.opts.Shared { // The other process' head may still have samples that this one has sealed.
					require.Equal(ts.t, res, format.ResolutionOf(window), "all is sealed and rolled up")
				}
			}
			require.NoError(ts.t, s.Buckets(&b, &buf))
			var samples chunk.Samples
			require.NoError(ts.t, raw[i].Samples(&samples))
			want.Reset()
			metric := s.Labels.Get(labels.MetricName)
			rollup.AppendStored(&want, &samples, metric, rollup.FiveMinutes.Width())
			if res == rollup.OneHour {
				hours.Reset()
				rollup.CoarsenStored(&hours, &want, metric, res.Width())
				want, hours = hours, want
			}
			if ts.opts.Shared { // Buckets of samples in the head have a sketch each, and moments and lines of counters.
				require.Equal(ts.t, want.End, b.End)
				b.Sketches, want.Sketches, b.Moment = nil, nil, want.Moment
				b.Comoment, b.TimeSum, b.TimeSquares = want.Comoment, want.TimeSum, want.TimeSquares
			}
			have := rollup.AppendChunk(nil, &b, res.Width(), 0)
			require.Equal(ts.t, rollup.AppendChunk(nil, &want, res.Width(), 0), have, "%s of %s", res, s.Labels)
			out = append(out, have...)
		}
	}
	return out
}

// answer returns all samples of a tenant, as samples of tenant ann.
func (ts *testStore) answer(tenant string) map[protocolSeries]*chunk.Samples {
	found, err := ts.Select(ts.t.Context(), query.Query{Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime})
	require.NoError(ts.t, err)
	out := map[protocolSeries]*chunk.Samples{}
	for _, s := range found {
		samples := &chunk.Samples{}
		require.NoError(ts.t, s.Samples(samples))
		out[protocolSeries{
			"ann", fmt.Sprintf("%s/%s", s.Labels.Get(labels.MetricName), s.Labels.Get("host")),
		}] = samples
	}
	return out
}
