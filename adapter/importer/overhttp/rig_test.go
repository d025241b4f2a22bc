package overhttp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return now }

func openStore(t *testing.T, change func(*storage.Options)) *storage.Store {
	s := storagetest.Open(
		t, memory.New(), storagetest.FixedClock(now), func(o *storage.Options) { o.Partitions = 2 }, change,
	)
	storagetest.CheckAtEnd(t, s)
	return s
}

// rig is a server with a store, and a client. A test can intercept requests.
type rig struct {
	*Client
	store  *storage.Store
	server *Server
	url    string
	// on is called with each request before the server handles it. It returns false if it has responded itself.
	on func(w http.ResponseWriter, r *http.Request) bool
	// posts counts the requests with a body. waits are the client's waits.
	posts int
	waits []time.Duration
	// mu orders the accesses of the server and of the test to these fields, and to variables that on shares with its
	// test. The server holds it for each access. The client's transport locks and unlocks it before and after each
	// request, so the test needs no lock.
	mu sync.Mutex
}

// allows reports whether the server handles a request.
func (r *rig) allows(w http.ResponseWriter, q *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Method == http.MethodPost {
		r.posts++
	}
	return r.on == nil || r.on(w, q)
}

// orderedTransport is the transport of a rig's client.
type orderedTransport struct {
	r  *rig
	to http.RoundTripper
}

func (o orderedTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	o.r.order() // Synchronize the test's writes with the server,
	defer o.r.order()
	return o.to.RoundTrip(q) // and the server's writes with the test.
}

func (r *rig) order() {
	r.mu.Lock()
	defer r.mu.Unlock()
}

func newRig(t *testing.T, change func(*Options), store func(*storage.Options)) *rig {
	r := &rig{store: openStore(t, store)}
	o := DefaultOptions()
	o.Ready = r.store.Ready
	o.Retention = func(string) importer.RetentionPolicy {
		return importer.RetentionPolicy{Default: retention.Durations{Raw: 24 * time.Hour}}
	}
	if change != nil {
		change(&o)
	}
	r.server = NewServer(importer.NewLocal(r.store, clock), o)
	mux := http.NewServeMux()
	mux.HandleFunc(Path, r.server.Import)
	mux.HandleFunc(Path+"/compare", r.server.Compare)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.allows(w, q) {
			mux.ServeHTTP(w, q.WithContext(tenant.NewContext(q.Context(), q.Header.Get(tenant.Header))))
		}
	}))
	t.Cleanup(s.Close)
	r.url = s.URL
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	at := now
	s.Client().Transport = orderedTransport{r, s.Client().Transport}
	r.Client = &Client{
		To: fetch.Client{HTTP: s.Client(), URL: u}, Patience: time.Minute, Now: func() time.Time { return at },
		Wait: func(_ context.Context, d time.Duration) error {
			r.waits = append(r.waits, d)
			at = at.Add(d)
			return nil
		},
	}
	return r
}

// randomHistory returns days of series with all kinds of samples. The same seed gives the same series.
func randomHistory(seed uint64, days, series int) []storage.ImportedSeries {
	r := rand.New(rand.NewPCG(seed, 7))
	from := now.AddDate(0, 0, -days).UnixMilli()
	var list []storage.ImportedSeries
	for i := range series {
		s := &chunk.Samples{}
		for at := from + r.Int64N(600_000); at <= now.UnixMilli(); at += 600_000 {
			h := tsdbutil.GenerateTestHistogram(at / 600_000 % 1000)
			switch {
			case i%4 == 3:
				s.AppendHistogram(chunk.Histogram{T: at, ST: from, Int: h})
			case i%4 == 2 && r.IntN(2) == 0:
				s.AppendHistogram(chunk.Histogram{T: at, Float: h.ToFloat(nil)})
			default:
				odd := []float64{
					math.Float64frombits(value.StaleNaN), math.Float64frombits(0x7ff80000deadbeef), math.Inf(-1),
					math.Copysign(0, -1), r.Float64(), float64(r.IntN(1000)),
				}
				s.AppendFloat(at, int64(i%2)*from, odd[r.IntN(len(odd))])
			}
		}
		ls := labels.FromStrings(labels.MetricName, fmt.Sprint("m", i%3), "instance", fmt.Sprint("ä,=\\", i))
		list = append(list, storage.ImportedSeries{Labels: ls, Samples: s})
	}
	return list
}

func samplesOf(list []storage.ImportedSeries) (n int) {
	for _, s := range list {
		n += s.Samples.Len()
	}
	return n
}

// requireThere requires that a destination has all samples of the series.
func requireThere(t *testing.T, into importer.Destination, list []storage.ImportedSeries) {
	t.Helper()
	n := samplesOf(list)
	stats, err := into.Compare(t.Context(), "a", list, importer.AllTimes(), func(d importer.Difference) { t.Error(d) })
	require.NoError(t, err)
	require.Zero(t, stats.Differences)
	require.Equal(t, n, stats.Samples+stats.RolledUp+stats.Left)
}

// TestStoresWhatLocalImportsDo imports the same history over HTTP and directly, in one body and in many. Both stores
// then have the same content.
func TestStoresWhatLocalImportsDo(t *testing.T) {
	t.Parallel()
	for name, weight := range map[string]int64{"one body": 128 << 20, "many": 40_000} {
		for name, keep := range map[string]time.Duration{name: 0, name + ", mostly rollups": 24 * time.Hour} {
			t.Run(name, func(t *testing.T) {
				kept := func(o *storage.Options) { o.Retention, o.Retention5m = keep, 0 }
				r := newRig(t, func(o *Options) { o.MaxWeight = weight }, kept)
				direct := importer.NewLocal(openStore(t, kept), clock)
				with := func() []storage.ImportedSeries {
					list := randomHistory(1, 20, 3)
					// The first series occurs twice, one series has no name, and one histogram is invalid.
					again := randomHistory(1, 20, 1)[0]
					again.Samples.AppendFloat(now.UnixMilli()-1, 0, 42)
					nameless := storage.ImportedSeries{
						Labels:  labels.FromStrings("job", "x"),
						Samples: &chunk.Samples{T: []int64{now.UnixMilli()}, V: []float64{1}},
					}
					bad := storage.ImportedSeries{
						Labels: labels.FromStrings(labels.MetricName, "bad"), Samples: &chunk.Samples{},
					}
					bad.Samples.AppendHistogram(chunk.Histogram{
						T: now.UnixMilli(), Int: &histogram.Histogram{Schema: 99},
					})
					bad.Samples.AppendFloat(now.Add(time.Hour).UnixMilli(), 0, 1)
					return append(list, again, nameless, bad)
				}
				want, err := direct.Import(t.Context(), "a", with())
				require.NoError(t, err)
				got, err := r.Import(t.Context(), "a", with())
				require.NoError(t, err)
				require.Equal(t, weight == 40_000, r.posts > 1)
				require.Len(t, got.Refusals, 2)
				require.ElementsMatch(t, []string{want.Refusals[0].Err.Error(), want.Refusals[1].Err.Error()},
					[]string{got.Refusals[0].Err.Error(), got.Refusals[1].Err.Error()})
				if r.posts > 1 {
					want.Series, want.Chunks, want.Bytes = got.Series, got.Chunks, got.Bytes
				}
				want.Known, got.Known = 0, 0
				want.Refusals, got.Refusals = nil, nil
				require.Equal(t, want, got)
				requireThere(t, direct, randomHistory(1, 20, 3))
				requireThere(t, r, randomHistory(1, 20, 3))
				requireThere(t, importer.NewLocal(r.store, clock), randomHistory(1, 20, 3))

				again, err := r.Import(t.Context(), "a", with())
				require.NoError(t, err)
				require.Zero(t, again.Samples)
				chunks, err := r.store.Check(t.Context(), func(problem string) { t.Error(problem) })
				require.NoError(t, err)
				require.Equal(t, want.Samples, chunks.Samples)
			})
		}
	}
}

// TestComparesOverHTTP checks that a comparison over HTTP reports the same differences as a local one.
func TestComparesOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	_, err := r.Import(t.Context(), "a", randomHistory(1, 4, 6))
	require.NoError(t, err)
	direct := importer.NewLocal(r.store, clock)
	changed := func() []storage.ImportedSeries {
		list := randomHistory(1, 4, 8) // with two more series
		list[0].Samples.V[100] = math.Inf(1)
		list[1].Samples.V[7] = 5.25
		return list
	}
	var want, got []string
	wantStats, err := direct.Compare(t.Context(), "a", changed(), importer.AllTimes(), func(d importer.Difference) {
		want = append(want, d.String())
	})
	require.NoError(t, err)
	gotStats, err := r.Compare(t.Context(), "a", changed(), importer.AllTimes(), func(d importer.Difference) {
		got = append(got, d.String())
	})
	require.NoError(t, err)
	require.Equal(t, wantStats, gotStats)
	require.ElementsMatch(t, want, got)
	require.Greater(t, len(got), 2)
	// Another tenant has no samples.
	stats, err := r.Compare(t.Context(), "b", randomHistory(1, 4, 1), importer.AllTimes(), func(importer.Difference) {})
	require.NoError(t, err)
	require.Equal(t, stats.SeriesDays, stats.Differences)

	r.server.comparing <- struct{}{} // Another comparison is in progress.
	_, err = r.Compare(t.Context(), "a", randomHistory(1, 1, 1), importer.AllTimes(), func(importer.Difference) {})
	require.ErrorIs(t, err, errUnavailable)
	require.ErrorContains(t, err, "another comparison is in progress")
}

var errUnreachable = errors.New("away")

func tenantA(ctx context.Context) context.Context { return tenant.NewContext(ctx, "a") }

// discardingWriter is a response that is dropped.
type discardingWriter struct{ header http.Header }

func (d *discardingWriter) Header() http.Header         { return d.header }
func (d *discardingWriter) Write(b []byte) (int, error) { return len(b), nil }
func (d *discardingWriter) WriteHeader(int)             {}
