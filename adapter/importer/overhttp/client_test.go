package overhttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/tenant"
)

// TestAnswersGetLost closes the connection before and after the series are stored. The client sends the series again,
// and they are stored once.
func TestAnswersGetLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	lost := 0
	r.on = func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method != http.MethodPost {
			return true
		}
		if lost++; lost == 1 {
			panic(http.ErrAbortHandler)
		}
		if lost == 2 {
			r.server.Import(&discardingWriter{header: http.Header{}}, q.Clone(tenantA(q.Context())))
			panic(http.ErrAbortHandler)
		}
		return true
	}
	list := randomHistory(1, 3, 3)
	n := samplesOf(list)
	stats, err := r.Import(t.Context(), "a", list)
	require.NoError(t, err)
	require.Equal(t, []int{0, n}, []int{stats.Samples, stats.Known})
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, r.waits)
	requireThere(t, r, randomHistory(1, 3, 3))
}

// TestServersThatAreBusyOrAway checks that the client repeats requests until Patience has passed, and no longer.
func TestServersThatAreBusyOrAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	_, err := r.Terms(t.Context(), "a")
	require.NoError(t, err)
	var told []string
	r.Waiting = func(err error) { told = append(told, err.Error()) }
	answers := []int{503, 429, 502}
	r.on = func(w http.ResponseWriter, q *http.Request) bool {
		if len(answers) == 0 {
			return true
		}
		w.Header().Set("Retry-After", "7")
		http.Error(w, "later", answers[0])
		answers = answers[1:]
		return false
	}
	stats, err := r.Import(t.Context(), "a", randomHistory(1, 2, 2))
	require.NoError(t, err)
	require.Positive(t, stats.Samples)
	require.Equal(t, []time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}, r.waits)
	require.Len(t, told, 3)
	require.Contains(t, told[0], "503 Service Unavailable: later")

	r.on = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	r.waits = nil
	_, err = r.Import(t.Context(), "a", randomHistory(1, 2, 2))
	require.ErrorIs(t, err, errUnavailable)
	var sum time.Duration
	for _, w := range r.waits {
		sum += w
	}
	require.LessOrEqual(t, sum, time.Minute)
	require.Greater(t, sum, 45*time.Second)

	// A server that is unreachable at first may be starting.
	r.waits = nil
	r.terms = nil
	reachable := r.To.HTTP
	r.To.HTTP = &http.Client{Transport: unreachable{}}
	_, err = r.Terms(t.Context(), "a")
	require.ErrorIs(t, err, errUnavailable)
	require.ErrorIs(t, err, errUnreachable)
	require.NotEmpty(t, r.waits)
	r.To.HTTP = reachable

	// The client doesn't repeat a request after a permanent error.
	r.waits = nil
	r.on = func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "no", http.StatusForbidden)
		return false
	}
	_, err = r.Import(t.Context(), "a", randomHistory(1, 2, 2))
	require.ErrorContains(t, err, "403 Forbidden: no")
	require.Empty(t, r.waits)

	ctx, cancel := context.WithCancel(t.Context())
	r.To.HTTP = &http.Client{Transport: unreachable{}}
	r.terms = &Terms{Version: 1, MaxBytes: 1 << 20, MaxWeight: 1 << 20}
	r.Wait = func(context.Context, time.Duration) error { cancel(); return ctx.Err() }
	_, err = r.Import(ctx, "a", randomHistory(1, 2, 2))
	require.ErrorIs(t, err, context.Canceled)
}

// unreachable is a transport without a server.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) { return nil, errUnreachable }

// TestOtherServers checks that the client detects servers that don't accept imports.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	for text, code := range map[string]int{
		"404 page not found": 404, "<html>": 200, `{"version":3,"max_bytes":1,"max_weight":1,"store":"a"}`: 200,
		`{"version":1,"max_bytes":1,"max_weight":1}`: 200,
	} {
		r := newRig(t, nil, nil)
		r.on = func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, text, code)
			return false
		}
		_, err := r.Import(t.Context(), "a", randomHistory(1, 1, 1))
		require.ErrorIs(t, err, errUnsupported, text)
	}
}

// TestSmallWays imports through a proxy that rejects large bodies. The client splits its bodies until they are small
// enough.
func TestSmallWays(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	most, refused := int64(80_000), 0
	r.on = func(w http.ResponseWriter, q *http.Request) bool {
		if q.ContentLength > most {
			refused++
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			return false
		}
		return true
	}
	for range 2 {
		_, err := r.Import(t.Context(), "a", randomHistory(1, 10, 12))
		require.NoError(t, err)
	}
	requireThere(t, r, randomHistory(1, 10, 12))
	require.Equal(t, 1, refused, "it should have learned")
	most = 10
	_, err := r.Import(t.Context(), "a", randomHistory(1, 1, 2))
	var status *fetch.StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, http.StatusRequestEntityTooLarge, status.Code)
}

// TestChangedRetention checks that the import fails if the retention changes while the server restarts, because the
// client selected samples by the previous retention.
func TestChangedRetention(t *testing.T) {
	t.Parallel()
	kept := importer.RetentionPolicy{Default: retention.Durations{Raw: 24 * time.Hour}}
	r := newRig(t, func(o *Options) { o.Retention = func(string) importer.RetentionPolicy { return kept } }, nil)
	_, err := r.Import(t.Context(), "a", randomHistory(1, 1, 4))
	require.NoError(t, err)
	for _, other := range []importer.RetentionPolicy{
		{Default: retention.Durations{Raw: 12 * time.Hour}},
		{Default: retention.Durations{Raw: 24 * time.Hour, FiveMinutes: 48 * time.Hour}},
		{
			Default: kept.Default,
			Classes: []retention.Class{{Name: "short", Durations: retention.Durations{Raw: time.Hour}}},
		},
	} {
		kept = other
		_, err = r.Import(t.Context(), "a", randomHistory(2, 1, 4))
		var status *fetch.StatusError
		require.ErrorAs(t, err, &status)
		require.Equal(t, http.StatusPreconditionFailed, status.Code)
		require.ErrorContains(t, err, "run the import again")
	}
	require.Empty(t, r.waits)
	req := httptest.NewRequest(http.MethodPost, Path, iotest.ErrReader(errors.New("the body was read")))
	req.Header.Set(retentionHeader, "another")
	w := httptest.NewRecorder()
	r.server.Import(w, req.WithContext(tenant.NewContext(t.Context(), "a")))
	require.Equal(t, http.StatusPreconditionFailed, w.Code, w.Body)
}

// TestIdentity checks that Identity returns the identity of the server's store, so that a checkpoint of another store
// isn't resumed.
func TestIdentity(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	identity, err := r.Identity(t.Context(), "a")
	require.NoError(t, err)
	require.NotEmpty(t, identity)
	require.Equal(t, r.store.Identity(), identity)
	other := newRig(t, nil, nil)
	require.NotEqual(t, identity, must(other.Identity(t.Context(), "a")))
}

// unidentifiedDestination is a destination that can't identify its store.
type unidentifiedDestination struct{ importer.Destination }

func (unidentifiedDestination) Identity(context.Context, string) (string, error) {
	return "", errors.New("the row is malformed")
}

// TestIdentityUnknown checks that an unknown identity is an error, because the checkpoint might belong to another
// store.
func TestIdentityUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	var log bytes.Buffer
	r.server.into = unidentifiedDestination{r.server.into}
	r.server.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	_, err := r.Identity(t.Context(), "a")
	require.ErrorContains(t, err, "the row is malformed")
	require.Contains(t, log.String(), "import over HTTP failed")
	require.Contains(t, log.String(), "tenant=a")
}

// TestSeriesWithoutSamples checks that series without samples aren't sent.
func TestSeriesWithoutSamples(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	list := randomHistory(1, 1, 2)
	n := samplesOf(list[:1])
	list[1].Samples = &chunk.Samples{}
	stats, err := r.Import(t.Context(), "a", list)
	require.NoError(t, err)
	require.EqualValues(t, n, stats.Samples)
	stats, err = r.Import(t.Context(), "a", []storage.ImportedSeries{
		{Labels: list[1].Labels, Samples: &chunk.Samples{}},
	})
	require.NoError(t, err)
	require.Zero(t, stats.Samples)
}

// TestBodiesThatAreRefused checks the status codes of rejected bodies.
func TestBodiesThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.MaxWeight = 1 << 20 }, nil)
	one, _, err := appendSeries(
		nil, labels.FromStrings(labels.MetricName, "up"), &chunk.Samples{T: []int64{1}, V: []float64{1}},
	)
	require.NoError(t, err)
	many := &chunk.Samples{}
	for i := range int64(100_000) {
		many.AppendFloat(i, 0, 1)
	}
	bomb, weight, err := appendSeries(nil, labels.FromStrings(labels.MetricName, "up"), many)
	require.NoError(t, err)
	require.Greater(t, weight, int64(1<<20))
	require.Less(t, len(bomb), 2000)
	good := encodeBody([][]byte{one})
	plain, err := snappy.Decode(nil, good)
	require.NoError(t, err)
	changed := func(f func([]byte) []byte) []byte { return snappy.Encode(nil, f(bytes.Clone(plain))) }
	for name, c := range map[string]struct {
		body []byte
		h    http.Header
		code int
	}{
		"good":            {body: good, code: 200},
		"empty":           {code: 400},
		"no snappy":       {body: []byte("series"), code: 400},
		"cut":             {body: good[:len(good)-3], code: 400},
		"snappy's bomb":   {body: []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, code: 400},
		"too large":       {body: snappy.Encode(nil, make([]byte, 1<<20)), code: 413},
		"heavy":           {body: encodeBody([][]byte{bomb}), code: 413},
		"another version": {body: changed(func(b []byte) []byte { b[0] = 3; return b }), code: 415},
		"a flipped bit":   {body: changed(func(b []byte) []byte { b[9] ^= 4; return b }), code: 400},
		"shorter":         {body: changed(func(b []byte) []byte { return b[:len(b)-1] }), code: 400},
		"nothing":         {body: changed(func(b []byte) []byte { return b[:3] }), code: 400},
		"half a series":   {body: encodeBody([][]byte{one, one[:len(one)/2]}), code: 400},
		"labels' bomb":    {body: encodeBody([][]byte{append(bytes.Repeat([]byte{0xff}, 8), 0x7f)}), code: 400},
		"other encoding":  {body: good, h: http.Header{"Content-Encoding": {"zstd"}}, code: 415},
		"other content":   {body: good, h: http.Header{"Content-Type": {"application/x-protobuf"}}, code: 415},
	} {
		for _, path := range []string{Path, Path + "/compare"} {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, bytes.NewReader(c.body))
			require.NoError(t, err)
			q.Header = http.Header{
				"Content-Type": {contentType}, "Content-Encoding": {contentEncoding}, "X-Scope-OrgID": {"a"},
			}
			for k, v := range c.h {
				q.Header[k] = v
			}
			answer, err := http.DefaultClient.Do(q)
			require.NoError(t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, c.code, answer.StatusCode, "%s: %s", name, text)
			require.Zero(t, r.server.budget.Used(), name)
		}
	}
	answer, err := http.DefaultClient.Do(must(http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+Path, nil)))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// TestBodiesShareABudget checks that a client waits while bodies exceed the budget or the server isn't ready.
func TestBodiesShareABudget(t *testing.T) {
	t.Parallel()
	notReady := errors.New("still reading")
	r := newRig(t, func(o *Options) {
		ready := o.Ready
		o.Ready = func() error {
			if notReady != nil {
				return notReady
			}
			return ready()
		}
	}, nil)
	var told []error
	share := r.server.budget.NewShare(t.Context())
	require.NoError(t, share.Claim(2*r.server.opts.MaxWeight))
	r.Waiting = func(err error) {
		switch told = append(told, err); len(told) {
		case 1:
			notReady = nil
		case 2:
			share.Release()
		}
	}
	_, err := r.Import(t.Context(), "a", randomHistory(1, 2, 2))
	require.NoError(t, err)
	require.Len(t, told, 2)
	require.ErrorContains(t, told[0], "503 Service Unavailable: too many bytes in flight: still reading")
	require.ErrorContains(t, told[1], "503 Service Unavailable: too many bytes in flight")
	require.Equal(t, []time.Duration{2 * time.Second, 2 * time.Second}, r.waits)
	require.Zero(t, r.server.budget.Used())
}

// TestLongSeriesAreCut checks that long series are split at the ends of days if they span multiple days.
func TestLongSeriesAreCut(t *testing.T) {
	t.Parallel()
	var sent [][]storage.ImportedSeries
	p := &packer{
		most: Terms{MaxBytes: 1 << 20, MaxWeight: 60_000}, stats: &storage.ImportStats{},
		send: func(series [][]byte) error {
			plain, err := snappy.Decode(nil, encodeBody(series))
			require.NoError(t, err)
			list, _, err := decodeBody(plain, func(int64) error { return nil })
			sent = append(sent, list)
			return err
		},
	}
	want := &chunk.Samples{}
	for i := range int64(20 * 288) {
		want.AppendFloat((i-3000)*300_000, 1+i, float64(i)) // also before 1970
	}
	for i := range int64(5000) { // all in one day
		want.AppendFloat(100*dayMS+1+i, 0, float64(i))
	}
	got := &chunk.Samples{}
	copied := &chunk.Samples{}
	copied.AppendAll(want)
	require.NoError(t, p.add(storage.ImportedSeries{
		Labels: labels.FromStrings(labels.MetricName, "up"), Samples: copied,
	}))
	require.NoError(t, p.flush())
	days := map[int64]string{}
	for i, list := range sent {
		for j, s := range list {
			got.AppendAll(s.Samples)
			for _, at := range s.Samples.T {
				if day := (at + 1000*dayMS - 1) / dayMS; day < 1100 {
					in := fmt.Sprint(i, " ", j)
					require.Equal(t, in, cmp.Or(days[day], in), "day %d is cut", day)
					days[day] = in
				}
			}
		}
	}
	require.Equal(t, want, got)
	require.Greater(t, len(sent), 4)
}

func FuzzDecode(f *testing.F) {
	for _, s := range randomHistory(1, 1, 4) {
		s.Samples.Normalize()
		s.Samples.Canonicalize(func(err error) { require.NoError(f, err) })
		one, _, err := appendSeries(nil, s.Labels, s.Samples)
		require.NoError(f, err)
		f.Add(one)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, series []byte) {
		plain, err := snappy.Decode(nil, encodeBody([][]byte{series}))
		require.NoError(t, err)
		left := int64(16 << 20)
		list, _, err := decodeBody(plain, func(n int64) error {
			if left -= n; left < 0 {
				return adapter.ErrTooLarge
			}
			return nil
		})
		if err != nil {
			require.True(t, errors.Is(err, errMalformed) || errors.Is(err, adapter.ErrTooLarge), err)
			return
		}
		for _, s := range list {
			if s.Labels.IsEmpty() {
				continue
			}
			one, weight, err := appendSeries(nil, s.Labels, s.Samples)
			require.NoError(t, err)
			require.Positive(t, weight)
			again, err := snappy.Decode(nil, encodeBody([][]byte{one}))
			require.NoError(t, err)
			back, _, err := decodeBody(again, func(int64) error { return nil })
			require.NoError(t, err)
			require.Len(t, back, 1)
			require.True(t, labels.Equal(s.Labels, back[0].Labels))
			require.True(t, back[0].Samples.Covers(s.Samples))
			require.Equal(t, s.Samples.Len(), back[0].Samples.Len())
		}
	})
}

// TestComparesARangeOverHTTP checks that a comparison applies the time range of the request and the retention classes
// of the server.
func TestComparesARangeOverHTTP(t *testing.T) {
	t.Parallel()
	kept := importer.RetentionPolicy{
		Default: retention.Durations{Raw: 24 * time.Hour, FiveMinutes: 48 * time.Hour},
		Classes: []retention.Class{{
			Name: "ci", Durations: retention.Durations{Raw: time.Hour},
			Match: [][]*labels.Matcher{{
				labels.MustNewMatcher(labels.MatchRegexp, "job", "ci|test"),
				labels.MustNewMatcher(labels.MatchNotEqual, "env", "prod"),
			}},
		}},
	}
	r := newRig(t, func(o *Options) { o.Retention = func(string) importer.RetentionPolicy { return kept } },
		func(o *storage.Options) { o.Retention, o.Retention5m = 24*time.Hour, 0 })
	terms, err := r.Terms(t.Context(), "a")
	require.NoError(t, err)
	got, err := terms.RetentionPolicy()
	require.NoError(t, err)
	require.Equal(t, kept.Default, got.Default)
	for _, job := range []string{"ci", "web"} {
		want, class := kept.KeepOf(labels.FromStrings("job", job))
		have, haveClass := got.KeepOf(labels.FromStrings("job", job))
		require.Equal(t, want, have)
		require.Equal(t, class, haveClass)
	}

	day := now.AddDate(0, 0, -20).Truncate(24 * time.Hour)
	series := func(from, n int) []storage.ImportedSeries {
		s := &chunk.Samples{}
		for i := range n {
			s.AppendFloat(day.Add(time.Duration(from+i)*time.Minute).UnixMilli(), 0, float64(from+i))
		}
		return []storage.ImportedSeries{{Labels: labels.FromStrings(labels.MetricName, "m"), Samples: s}}
	}
	_, err = r.Import(t.Context(), "a", series(0, 600))
	require.NoError(t, err)
	within := query.Span{MinT: day.Add(60 * time.Minute).UnixMilli(), MaxT: day.Add(122 * time.Minute).UnixMilli()}
	stats, err := r.Compare(t.Context(), "a", series(60, 63), within, func(d importer.Difference) { t.Error(d) })
	require.NoError(t, err)
	require.Equal(t, importer.VerifyStats{SeriesDays: 1, RolledUp: 60, Left: 3}, stats)
	stats, err = r.Compare(t.Context(), "a", series(60, 63), importer.AllTimes(), func(d importer.Difference) {
		t.Error(d)
	})
	require.NoError(t, err)
	require.Equal(t, importer.VerifyStats{SeriesDays: 1, RolledUp: 60, Left: 3}, stats,
		"the store has more in the last bucket")
}
