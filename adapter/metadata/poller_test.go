package metadata

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestParseSource(t *testing.T) {
	for text, want := range map[string][2]string{
		"http://prometheus:9090":            {"default", "http://prometheus:9090/api/v1/metadata"},
		"team-a=https://u:pw@example.org/p": {"team-a", "https://u:pw@example.org/p/api/v1/metadata"},
		"a=http://h:1/":                     {"a", "http://h:1/api/v1/metadata"},
	} {
		s, err := ParseSource(text)
		require.NoError(t, err, text)
		require.Equal(t, want, [2]string{s.Tenant, s.URL.JoinPath("api/v1/metadata").String()})
	}
	s, err := ParseSource("team-a=https://u:s3cret@example.org/p")
	require.NoError(t, err)
	require.Equal(t, "team-a=https://u:xxxxx@example.org/p", s.String())
	require.Equal(t, "https://example.org/p", s.name())
	for _, text := range []string{
		"", "prometheus:9090", "ftp://a", "http://", "http://a?s3cret=1", "a/b=http://a", "a=", "a=http://u:s3cret@[",
		"http://a/#s3cret",
	} {
		_, err := ParseSource(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// responses is a transport that returns the given responses in order and then repeats the last one.
type responses struct {
	mu    sync.Mutex
	list  []http.HandlerFunc
	asked []time.Time
}

func (a *responses) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	next := a.list[min(len(a.asked), len(a.list)-1)]
	a.asked = append(a.asked, time.Now())
	a.mu.Unlock()
	w := httptest.NewRecorder()
	next(w, r)
	return w.Result(), r.Context().Err()
}

func reply(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, text)
	}
}

// rig is a poller with the metadata and the log lines that it produced.
type rig struct {
	*Poller
	source   Source
	answers  *responses
	mu       sync.Mutex
	noted    []string
	log      bytes.Buffer
	registry *prometheus.Registry
}

func newRig(t *testing.T, list ...http.HandlerFunc) *rig {
	r := &rig{answers: &responses{list: list}, registry: prometheus.NewRegistry()}
	var err error
	r.source, err = ParseSource("a=http://u:s3cret@prometheus:9090/p")
	require.NoError(t, err)
	r.source.Client = &http.Client{Transport: r.answers}
	o := DefaultOptions()
	o.Sources, o.Registerer, o.Logger = []Source{r.source}, r.registry, slog.New(slog.NewTextHandler(&r.log, nil))
	o.Note = func(tenant string, metric []byte, kind string, unit, help []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.noted = append(r.noted, fmt.Sprintf("%s %s %s %s %s", tenant, metric, kind, unit, help))
	}
	r.Poller = New(o)
	return r
}

const payload = `{"status":"success","warnings":["w"],"data":{"a_total":[{"type":"counter","unit":"","help":"As."}],
	"b":[{"type":"gauge","unit":"bytes","help":"One."},{"type":"what","help":"Another."}],"c":[]}}`

func TestAskNotesWhatIsAnswered(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		if request.Method+" "+request.URL.Path != "GET /p/api/v1/metadata" {
			w.WriteHeader(http.StatusNotFound)
		}
		reply(http.StatusOK, payload)(w, request)
	})
	found, err := r.pollOnce(t.Context(), r.source)
	require.NoError(t, err)
	require.Equal(t, 3, found)
	require.Equal(t, []string{"a a_total counter  As.", "a b gauge bytes One.", "a b unknown  Another."}, r.noted)
	require.EqualValues(t, 1, testutil.ToFloat64(r.requests.WithLabelValues("a", "http://prometheus:9090/p", resultOK)))
	require.InDelta(t, float64(time.Now().Unix()), testutil.ToFloat64(r.success), 600)
}

func TestAskSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"login":          {reply(http.StatusUnauthorized, "Who\nare you?"), "returned 401 Unauthorized: Who are you?; set the credentials with --metadata.http.config.file"},
		"path":           {reply(http.StatusNotFound, ""), "the URL must be the base URL, to which /api/v1/metadata is appended"},
		"busy":           {reply(http.StatusServiceUnavailable, strings.Repeat("x", 1000)), "503 Service Unavailable: " + strings.Repeat("x", errorBytes)},
		"error":          {reply(http.StatusOK, `{"status":"error","data":null,"error":"no"}`), `the server returned "error": no`},
		"page":           {reply(http.StatusOK, "<html>"), "not a valid response of Prometheus' /api/v1/metadata"},
		"list":           {reply(http.StatusOK, "[]"), "not a valid response of Prometheus' /api/v1/metadata"},
		"another's":      {reply(http.StatusOK, `{"status":"success","data":["a"]}`), "instead of an object"},
		"cut off":        {reply(http.StatusOK, payload[:len(payload)-20]), "not a valid response of Prometheus' /api/v1/metadata"},
		"endless":        {reply(http.StatusOK, `{"status":"success","x":"`+strings.Repeat("x", 3<<20)), "more than 2 MiB"},
		"endless metric": {reply(http.StatusOK, `{"data":{"x":[{"help":"`+strings.Repeat("x", 3<<20)), "more than 2 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.answer)
			r.o.MaxBytes = 2 << 20
			_, err := r.pollOnce(t.Context(), r.source)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "s3cret")
			require.EqualValues(
				t, 1, testutil.ToFloat64(r.requests.WithLabelValues("a", "http://prometheus:9090/p", resultFailed)),
			)
			require.Less(t, len(err.Error()), 500)
		})
	}
}

// TestRun checks when a source is polled: soon after a failure or an empty response, at long intervals otherwise. Only
// the first of consecutive failures is logged.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		r := newRig(t, reply(http.StatusBadGateway, "no"), never, reply(http.StatusBadGateway, "no"),
			reply(http.StatusOK, `{"status":"success","data":{}}`), reply(http.StatusOK, payload))
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		time.Sleep(10 * time.Minute)
		cancel()
		<-ended
		var at []time.Duration
		for _, when := range r.answers.asked {
			at = append(at, when.Sub(began))
		}
		// The second request ends after 30 s, by its timeout.
		require.Equal(
			t, []time.Duration{0, 5 * time.Second, 45 * time.Second, 65 * time.Second, 105 * time.Second}, at[:5],
		)
		require.Equal(
			t, []time.Duration{2 * time.Minute, 2 * time.Minute}, []time.Duration{at[5] - at[4], at[6] - at[5]},
		)
		require.Equal(t, 1, strings.Count(r.log.String(), "level=WARN"), r.log.String())
		require.Contains(t, r.log.String(), "502 Bad Gateway")
		require.Equal(t, 1,
			strings.Count(r.log.String(), "fetching metric metadata from a server of --metadata.from works again"))
		require.NotContains(t, r.log.String(), "s3cret")
	})
}
