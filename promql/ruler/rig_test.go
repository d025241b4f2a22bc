package ruler

import (
	"context"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/rules"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

const testTenant = "team-a"

// rig is a store with a clock that the test sets. Each of its rulers represents a process.
type rig struct {
	t     *testing.T
	now   time.Time
	dir   string
	store *storage.Store
	sent  []string
	// alerts are the alerts that were sent.
	alerts []*notifier.Alert
	// clock, if not nil, is the store's clock instead of now.
	clock func() time.Time
	// appending and committed, if not nil, are called before and after rules store results.
	appending, committed func()
}

func newRig(t *testing.T) *rig {
	return newRigIn(t, t.TempDir(), nil)
}

func newRigIn(t *testing.T, dir string, clock func() time.Time) *rig {
	r := &rig{t: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), dir: dir, clock: clock}
	r.store = storagetest.Open(t, memory.New(), storagetest.Clock(func() time.Time {
		if r.clock != nil {
			return r.clock()
		}
		return r.now
	}))
	return r
}

// file writes a rule file, and sets the clock to a time at which its group is due.
func (r *rig) file(text string) {
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, "rules.yml"), []byte(text), 0o600))
	for _, g := range r.process().groups {
		r.now = g.EvalTimestamp(r.now.UnixNano())
	}
}

func (r *rig) options() Options {
	eo := promql.DefaultOptions()
	engine := promql.NewEngine(eo)
	r.t.Cleanup(func() { require.NoError(r.t, engine.Close()) })
	o := DefaultOptions()
	o.Sources, o.ExternalURL = []Source{{testTenant, filepath.Join(r.dir, "*.yml")}},
		&url.URL{Scheme: "http", Host: "cassia:9201"}
	o.Engine, o.Queryable, o.Parser = engine, promql.NewQueryable(r.store), promql.NewParser(eo.Parser)
	o.Appendable, o.Send, o.Now = appendable{r}, r, func() time.Time { return r.now }
	o.Registerer = prometheus.NewRegistry()
	return o
}

// Send implements rules.Sender.
func (r *rig) Send(alerts ...*notifier.Alert) {
	for _, a := range alerts {
		r.alerts = append(r.alerts, a)
		state := "firing"
		if !a.EndsAt.After(r.now) {
			state = "resolved"
		}
		r.sent = append(r.sent, state+" "+a.Labels.String())
	}
}

// process starts a process that evaluates rules. Its groups are fresh (see manager.fresh), and due at times that the
// test sets.
func (r *rig) process() *process {
	o := r.options()
	ruler, err := New(r.store, o)
	require.NoError(r.t, err)
	m := ruler.newEmptyManager(testTenant)
	m.files = ruler.files[testTenant]
	ctx := tenant.NewContext(r.t.Context(), testTenant)
	m.Manager = rules.NewManager(m.options(ctx, slog.New(slog.DiscardHandler), rules.NewGroupMetrics(nil),
		recordingAppendable{o.Appendable, ruler}))
	groups, errs := m.LoadGroups(o.Interval, o.ExternalLabels, ruler.externalURL(testTenant).String(),
		m.iterateGroup, false,
		m.files.paths()...)
	require.Empty(r.t, errs)
	for key := range groups {
		m.fresh[key] = true
	}
	return &process{rig: r, manager: m, groups: groups, ctx: ctx}
}

type process struct {
	*rig
	*manager
	groups map[string]*rules.Group
	ctx    context.Context
}

// evaluate evaluates all groups at the last times at which they were due. It returns this time for one of the groups.
func (p *process) evaluate() (due time.Time) {
	for _, g := range p.groups {
		due = g.EvalTimestamp(p.now.UnixNano())
		p.iterateGroup(p.ctx, g, due)
	}
	return due
}

// write stores a sample at the rig's clock.
func (r *rig) write(series string, v float64) {
	ls, _, err := promql.NewParser(promql.DefaultOptions().Parser).ParseSeriesDesc(series + " 0")
	require.NoError(r.t, err)
	app := appendable{&rig{store: r.store}}.Appender(tenant.NewContext(r.t.Context(), testTenant))
	_, err = app.Append(0, ls, r.now.UnixMilli(), v)
	require.NoError(r.t, err)
	require.NoError(r.t, app.Commit())
}

// stored returns the values of a series as text, one character per interval, starting at the time from: "." if there is
// no value, "x" for a stale marker.
func (r *rig) stored(matcher string, from time.Time, interval time.Duration) string {
	ms, err := promql.NewParser(promql.DefaultOptions().Parser).ParseMetricSelector(matcher)
	require.NoError(r.t, err)
	found, err := r.store.Select(r.t.Context(), query.Query{Tenant: testTenant, MinT: math.MinInt64 / 2,
		MaxT: math.MaxInt64 / 2, Matchers: ms})
	require.NoError(r.t, err)
	require.LessOrEqual(r.t, len(found), 1, matcher)
	var samples chunk.Samples
	for _, one := range found {
		require.NoError(r.t, one.Samples(&samples))
	}
	at := map[int64]string{}
	for i, t := range samples.T {
		at[t] = labelOf(samples.V[i])
	}
	var text strings.Builder
	for t := from; !t.After(r.now); t = t.Add(interval) {
		v, ok := at[t.UnixMilli()]
		if !ok {
			v = "."
		}
		text.WriteString(v)
	}
	return text.String()
}

func labelOf(v float64) string {
	switch {
	case value.IsStaleNaN(v):
		return "x"
	case v == math.Trunc(v) && v >= 0 && v < 10:
		return string(rune('0' + int(v)))
	}
	return "#"
}

// appendable implements the methods of adapter.Appendable that rules use. cmd's tests run rules with adapter.Appendable
// itself.
type appendable struct{ rig *rig }

func (a appendable) Appender(ctx context.Context) promstorage.Appender {
	if a.rig.appending != nil {
		a.rig.appending()
	}
	return &testAppender{rig: a.rig, ctx: ctx, batch: a.rig.store.NewBatch(tenant.FromContext(ctx))}
}

type testAppender struct {
	promstorage.Appender
	rig   *rig
	ctx   context.Context
	batch *storage.Batch
}

func (a *testAppender) Append(_ promstorage.SeriesRef, ls labels.Labels, t int64,
	v float64) (promstorage.SeriesRef, error) {
	series, err := a.batch.Define(nil, ls)
	if err == nil {
		err = a.batch.Float(series, t, 0, v)
	}
	return 0, err
}

func (a *testAppender) AppendHistogram(_ promstorage.SeriesRef, ls labels.Labels, t int64, h *histogram.Histogram,
	fh *histogram.FloatHistogram) (promstorage.SeriesRef, error) {
	series, err := a.batch.Define(nil, ls)
	if err == nil {
		err = a.batch.Histogram(series, t, 0, h, fh.Copy())
	}
	return 0, err
}

func (a *testAppender) SetOptions(*promstorage.AppendOptions) {}

func (a *testAppender) Commit() error {
	err := a.batch.Commit(a.ctx)
	if a.rig.committed != nil {
		a.rig.committed()
	}
	return err
}

func (a *testAppender) Rollback() error { a.batch.Release(); return nil }

// contextOf returns a context for the test's tenant.
func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(tenant.NewContext(t.Context(), testTenant))
}
