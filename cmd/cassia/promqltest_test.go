package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/promql/promqltest"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/remotewrite"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// TestPrometheusSuite runs Prometheus' own test suite for PromQL. Samples are written with remote write 2.0 and read
// through the Queryable, from the head in one run and from sealed rows in another. After each "clear" command, the
// suite continues with a new tenant of the same store, so that the test also detects leaks between tenants.
func TestPrometheusSuite(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("some 2,000 queries, twice: half a minute")
	}
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("sealed=%v", sealed), func(t *testing.T) {
			eng := storagetest.Pebble(t)
			runSuite(t, newSuiteStore(t, func() bool { return sealed }, nil, eng).newTenant)
		})
	}
}

// runSuite runs Prometheus' test suite. Each part uses its own storage, so that the parts are independent.
func runSuite(t *testing.T, newStorage func(testing.TB) promstorage.Storage) {
	o := promql.DefaultOptions()
	o.MaxSamples = promqltest.DefaultMaxSamplesPerQuery
	o.Timeout = 100 * time.Second
	o.Parser = promqltest.TestParserOpts
	o.DelayedNameRemoval, o.StartTimestamps = true, true
	evaluator := promql.NewEngine(o)
	defer evaluator.Close()
	promqltest.RunBuiltinTestsWithStorage(t, evaluator, newStorage)
}

// suiteStore is the storage of the suite. It has one store, or multiple stores on the same data. Samples are written to
// the first store and read from the last. Each "clear" command starts a new tenant.
type suiteStore struct {
	stores  []*storage.Store
	write   http.Handler
	read    *promql.Queryable
	sealed  func() bool // reports whether a tenant's samples are sealed before they are read
	tenants atomic.Int64
	seals   atomic.Int64

	partitions int
}

// newSuiteStore opens a store on each of the given engines.
func newSuiteStore(
	t *testing.T, sealed func() bool, change func(*storage.Options), engines ...engine.Engine,
) *suiteStore {
	s := &suiteStore{sealed: sealed}
	for _, eng := range engines {
		s.stores = append(s.stores, storagetest.Open(t, eng, change, storagetest.KeepForever))
	}
	s.partitions = s.stores[0].Partitions()
	var err error
	s.write, err = remotewrite.Handler(s.stores[0], remotewrite.DefaultOptions())
	require.NoError(t, err)
	s.read = promql.NewQueryable(s.stores[len(engines)-1])
	return s
}

func (s *suiteStore) newTenant(testing.TB) promstorage.Storage {
	return &suiteTenant{suiteStore: s, name: "suite-" + strconv.FormatInt(s.tenants.Add(1), 10)}
}

// suiteTenant implements Prometheus' storage interface for a tenant.
type suiteTenant struct {
	*suiteStore
	name string
}

var _ promstorage.Storage = (*suiteTenant)(nil)

func (s *suiteTenant) Close() error              { return nil }
func (s *suiteTenant) StartTime() (int64, error) { return 0, nil }

func (s *suiteTenant) Appender(context.Context) promstorage.Appender {
	panic("the suite appends with AppenderV2")
}

func (s *suiteTenant) AppenderV2(ctx context.Context) promstorage.AppenderV2 {
	return &suiteAppender{ctx: ctx, s: s, symbols: writev2.NewSymbolTable(), series: map[string]int{}}
}

func (s *suiteTenant) Querier(mint, maxt int64) (promstorage.Querier, error) {
	q, err := s.read.Querier(mint, maxt)
	return suiteQuerier{q, s.name}, err
}

func (s *suiteTenant) ChunkQuerier(mint, maxt int64) (promstorage.ChunkQuerier, error) {
	return s.read.ChunkQuerier(mint, maxt)
}

// suiteQuerier adds the tenant to the context of each call, as the server does for each request.
type suiteQuerier struct {
	promstorage.Querier
	tenant string
}

func (q suiteQuerier) Select(
	ctx context.Context, sorted bool, hints *promstorage.SelectHints, ms ...*labels.Matcher,
) promstorage.SeriesSet {
	return q.Querier.Select(tenant.NewContext(ctx, q.tenant), sorted, hints, ms...)
}

func (q suiteQuerier) LabelNames(
	ctx context.Context, hints *promstorage.LabelHints, ms ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return q.Querier.LabelNames(tenant.NewContext(ctx, q.tenant), hints, ms...)
}

func (q suiteQuerier) LabelValues(
	ctx context.Context, name string, hints *promstorage.LabelHints, ms ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return q.Querier.LabelValues(tenant.NewContext(ctx, q.tenant), name, hints, ms...)
}

// suiteAppender collects samples into one remote write 2.0 request.
type suiteAppender struct {
	ctx     context.Context
	s       *suiteTenant
	symbols writev2.SymbolsTable
	request writev2.Request
	series  map[string]int // index in the request, by labels

	floats, histograms int
}

func (a *suiteAppender) Append(
	_ promstorage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram,
	fh *histogram.FloatHistogram, _ promstorage.AppendV2Options,
) (promstorage.SeriesRef, error) {
	i, ok := a.series[string(ls.Bytes(nil))]
	if !ok {
		i = len(a.request.Timeseries)
		a.series[string(ls.Bytes(nil))] = i
		a.request.Timeseries = append(a.request.Timeseries, writev2.TimeSeries{
			LabelsRefs: a.symbols.SymbolizeLabels(ls, nil),
		})
	}
	series := &a.request.Timeseries[i]
	switch {
	case fh != nil:
		series.Histograms = append(series.Histograms, writev2.FromFloatHistogram(st, t, fh))
		a.histograms++
	case h != nil:
		series.Histograms = append(series.Histograms, writev2.FromIntHistogram(st, t, h))
		a.histograms++
	default:
		series.Samples = append(series.Samples, writev2.Sample{Value: v, Timestamp: t, StartTimestamp: st})
		a.floats++
	}
	return 0, nil
}

func (a *suiteAppender) Rollback() error { return nil }

func (a *suiteAppender) Commit() error {
	if len(a.request.Timeseries) == 0 {
		return nil
	}
	a.request.Symbols = a.symbols.Symbols()
	body, err := a.request.Marshal()
	if err != nil {
		return err
	}
	r := httptest.NewRequestWithContext(
		tenant.NewContext(a.ctx, a.s.name), http.MethodPost, "/api/v1/write", bytes.NewReader(snappy.Encode(nil, body)),
	)
	r.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
	r.Header.Set("Content-Encoding", "snappy")
	r.Header.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	w := httptest.NewRecorder()
	a.s.write.ServeHTTP(w, r)
	if w.Code != http.StatusNoContent {
		return fmt.Errorf("remote write: %d %s", w.Code, w.Body)
	}
	written := w.Header().Get("X-Prometheus-Remote-Write-Samples-Written") + " " +
		w.Header().Get("X-Prometheus-Remote-Write-Histograms-Written")
	if written != fmt.Sprintf("%d %d", a.floats, a.histograms) {
		return errors.New("not all was written: " + written)
	}
	if a.s.sealed() {
		return a.s.sealAll(a.ctx)
	}
	return nil
}

// sealAll seals all samples, so that none are read from a head. The stores take turns. The stores that don't seal
// release the sealed samples from their heads, as their background loops do. If a store reads samples from the staging
// log just before another store seals them, it releases these samples only at the next call.
func (s *suiteStore) sealAll(ctx context.Context) error {
	if err := s.stores[s.seals.Add(1)%int64(len(s.stores))].SealAll(ctx); err != nil {
		return err
	}
	chunks := int64(0)
	for range 100 {
		chunks = 0
		for _, store := range s.stores {
			chunks += store.HeadStats().Chunks
		}
		if chunks == 0 {
			return nil
		}
		if err := s.deleteAll(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("not all was sealed, the heads still have %d chunks", chunks)
}

func (s *suiteStore) deleteAll(ctx context.Context) error {
	for _, store := range s.stores {
		for p := range s.partitions {
			if err := store.ReleaseSealed(ctx, p); err != nil {
				return err
			}
		}
		store.ReleaseSeries()
	}
	return nil
}
