package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/pebble"
)

var rewritePictures = flag.Bool("rewrite", false, "write the manual's pictures anew, with what the page shows now")

// TestThePageInABrowser uses all views of a real Cassia server in a real Chromium, see browser/run.mjs. If
// CASSIA_UI_SHOTS is set, the screenshots are saved in that folder. With -rewrite, the test updates the manual's
// images.
func TestThePageInABrowser(t *testing.T) {
	needModules(t)
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: install Debian's package of that name")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	binary, err := promrig.BuildCassia(t.TempDir())
	require.NoError(t, err)

	const password, token = "right-password", "right-token"
	files := t.TempDir()
	limits, users := filepath.Join(files, "limits.yml"), filepath.Join(files, "auth.yml")
	require.NoError(t, os.WriteFile(
		limits, []byte("tenants:\n  team-a: {samples_per_second: 100000, active_series: 1000, query_range: 31d}\n"),
		0o600,
	))
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	digest := sha256.Sum256([]byte(token))
	require.NoError(t,
		os.WriteFile(users, fmt.Appendf(nil, "users:\n- {name: ann, password: %s, roles: [read], tenants: [team-a]}\n"+
			"- {name: ops, tokens: ['sha256:%s'], roles: [admin], tenants: '*'}\n",
			hash, hex.EncodeToString(digest[:])), 0o600))

	rules := filepath.Join(files, "rules.yml")
	require.NoError(t, os.WriteFile(rules, []byte(`groups:
- name: shop
  interval: 5s
  rules:
  - {record: "job:requests:count", expr: count by (job) (http_requests_total)}
  - {alert: ManyRequests, expr: "count(http_requests_total) > 3", labels: {severity: page}, annotations: {summary: "{{ $value }} series", runbook: "https://example.org/many"}}
  - {alert: Ambiguous, expr: "http_requests_total * on (job) http_requests_total"}
`), 0o600))

	relabel := filepath.Join(files, "relabel.yml")
	require.NoError(t, os.WriteFile(
		relabel, []byte("write_relabel_configs: [{source_labels: [__name__], regex: unwanted_.*, action: drop}]\n"),
		0o600,
	))

	home := shortFolder(t)
	program := promrig.Cassia(
		binary, home, freeAddress(t), "--limits.file="+limits, "--rule.files="+rules, "--write.relabel-file="+relabel,
	)
	open := start(ctx, t, program)
	locked := start(ctx, t, promrig.Cassia(
		binary, t.TempDir(), freeAddress(t), "--auth.file="+users, "--no-self-monitoring",
		"--backup.to="+filepath.Join(relabel, "backups"),
	)) // This folder can't be created below a file.
	bare := start(ctx, t, promrig.Cassia(binary, t.TempDir(), freeAddress(t), "--no-self-monitoring"))
	lacking := t.TempDir()
	eng, err := pebble.Open(filepath.Join(lacking, "data"), pebble.DefaultOptions())
	require.NoError(t, err)
	sealAndDamage(t, eng)
	require.NoError(t, eng.Close())
	lacks := start(ctx, t, promrig.Cassia(binary, lacking, freeAddress(t), "--no-self-monitoring"))
	storeSamples(ctx, t, open.URL())
	importHistory(ctx, t, binary, files, open.URL())
	require.NoError(t, open.Terminate(time.Minute)) // A start writes the log to files, whose sizes are then shown.
	program.Args = append(
		program.Args, "--backup.to="+filepath.Join(home, "backups"), "--backup.every=1h", "--backup.keep-hourly=24",
	)
	open = start(ctx, t, program)
	dropped := latencySeries(time.Now(), time.Now().Add(time.Millisecond), time.Minute)
	remoteWrite(ctx, t, open.URL(), "default", dropped[len(dropped)-1:])

	shots := os.Getenv("CASSIA_UI_SHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	pictures := t.TempDir()
	if *rewritePictures {
		pictures = filepath.Join("..", "manual", "images")
	}
	cmd := exec.CommandContext(ctx, "node", "browser/run.mjs")
	cmd.Env = append(os.Environ(), "BASE="+open.URL(), "LOCKED="+locked.URL(), "BARE="+bare.URL(),
		"DAMAGED="+lacks.URL(), "CHROMIUM="+chromium, "SHOTS="+shots, "PICTURES="+pictures, "PASSWORD="+password,
		"TOKEN="+token, "NOFOLDER="+relabel)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Run(), "the output above says what went wrong")
}

// shortFolder returns an empty folder with a short path, which is shown in screenshots.
func shortFolder(t *testing.T) string {
	dir, err := os.MkdirTemp("", "cassia")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func freeAddress(t *testing.T) string {
	out, err := promrig.FreeAddress()
	require.NoError(t, err)
	return out
}

func start(ctx context.Context, t *testing.T, p promrig.Program) *promrig.Process {
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	process, err := promrig.StartReady(ready, p)
	require.NoError(t, err)
	t.Cleanup(process.Kill)
	return process
}

// storeSamples writes and seals three days of samples of two tenants. It then writes late samples, and samples that
// stay unsealed.
func storeSamples(ctx context.Context, t *testing.T, url string) {
	now := time.Now().Truncate(time.Minute)
	from := now.Add(-72 * time.Hour)
	remoteWrite(ctx, t, url, "default", requestSeries(from, now.Add(-2*time.Hour), time.Minute, true))
	remoteWrite(ctx, t, url, "team-a", queueSeries(from, now.Add(-2*time.Hour), 5*time.Minute))
	require.NoError(t, promrig.PostEmpty(ctx, url+"/-/seal"))
	late := now.Add(-30 * time.Hour)
	series := requestSeries(late.Add(time.Second), late.Add(2*time.Second), time.Second, false)
	remoteWrite(ctx, t, url, "default", series)
	require.NoError(t, promrig.PostEmpty(ctx, url+"/-/seal"))
	ahead := now.Add(storage.MaxAhead - time.Minute) // The page then finds samples at any time that it queries.
	remoteWrite(ctx, t, url, "default", requestSeries(now.Add(-2*time.Hour), ahead, time.Minute, true))
	remoteWrite(ctx, t, url, "default", specialSeries(now.Add(-2*time.Hour), ahead, time.Minute))
	remoteWrite(ctx, t, url, "default", latencySeries(now.Add(-2*time.Hour), ahead, time.Minute))
	remoteWrite(ctx, t, url, "team-a", queueSeries(now.Add(-2*time.Hour), ahead, 5*time.Minute))
}

// importHistory imports three days of a series into a separate tenant.
func importHistory(ctx context.Context, t *testing.T, binary, dir, url string) {
	text, now := "# TYPE imported gauge\n", time.Now().Truncate(time.Hour)
	for at := now.Add(-72 * time.Hour); at.Before(now.Add(-24 * time.Hour)); at = at.Add(time.Minute) {
		text += fmt.Sprintf("imported{job=\"a\"} 1 %d\n", at.Unix())
	}
	file := filepath.Join(dir, "imported.om")
	require.NoError(t, os.WriteFile(file, []byte(text+"# EOF\n"), 0o600))
	cmd := exec.CommandContext(ctx, binary, "import", "openmetrics", "--url="+url, "--tenant=imported", file)
	cmd.Dir = dir // The checkpoint is written to the working directory.
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// requestSeries returns the samples of eight counters of two jobs and, if gauges is set, of eight temperatures.
func requestSeries(from, to time.Time, every time.Duration, gauges bool) (all []prompb.TimeSeries) {
	for i := range 8 {
		names := []prompb.Label{
			{Name: "__name__", Value: "http_requests_total"},
			{Name: "instance", Value: fmt.Sprintf("host-%d.example.org:9100", i)},
			{Name: "job", Value: []string{"api", "web"}[i%2]}, {Name: "path", Value: "/v1/things/and/more"},
		}
		counter := prompb.TimeSeries{Labels: names}
		gauge := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "temperature_celsius"}, names[1]}}
		for at := from; at.Before(to); at = at.Add(every) {
			hours := float64(at.UnixMilli()) / 3.6e6
			value := math.Floor(hours*3600*float64(i+1) + 2000*math.Sin(hours))
			counter.Samples = append(counter.Samples, prompb.Sample{Timestamp: at.UnixMilli(), Value: value})
			gauge.Samples = append(gauge.Samples, prompb.Sample{
				Timestamp: at.UnixMilli(), Value: math.Round(200+50*math.Sin(hours/4+float64(i))) / 10,
			})
		}
		all = append(all, counter)
		if gauges {
			all = append(all, gauge)
		}
	}
	return all
}

// queueSeries returns the samples of eight gauges.
func queueSeries(from, to time.Time, every time.Duration) (all []prompb.TimeSeries) {
	for i := range 8 {
		gauge := prompb.TimeSeries{Labels: []prompb.Label{
			{Name: "__name__", Value: "queue_length"}, {Name: "queue", Value: fmt.Sprint("q", i)},
		}}
		for at := from; at.Before(to); at = at.Add(every) {
			gauge.Samples = append(gauge.Samples, prompb.Sample{
				Timestamp: at.UnixMilli(), Value: float64((at.Unix()/300 + int64(i)) % 7),
			})
		}
		all = append(all, gauge)
	}
	return all
}

// specialSeries returns the samples of constant gauges whose values are easily displayed incorrectly.
func specialSeries(from, to time.Time, every time.Duration) (all []prompb.TimeSeries) {
	for i, v := range []float64{1795394751.29, math.SmallestNonzeroFloat64, math.MaxFloat64, math.Inf(1), math.NaN()} {
		gauge := prompb.TimeSeries{
			Labels: []prompb.Label{{Name: "__name__", Value: "special_values"}, {Name: "i", Value: fmt.Sprint(i)}},
		}
		for at := from; at.Before(to); at = at.Add(every) {
			gauge.Samples = append(gauge.Samples, prompb.Sample{Timestamp: at.UnixMilli(), Value: v})
		}
		all = append(all, gauge)
	}
	return all
}

// latencySeries returns the samples of a classic histogram with exemplars, a native histogram with the same values, a
// gauge in bytes, and series that a rule drops.
func latencySeries(from, to time.Time, every time.Duration) []prompb.TimeSeries {
	named := func(name string, more ...prompb.Label) prompb.TimeSeries {
		return prompb.TimeSeries{Labels: append([]prompb.Label{{Name: "__name__", Value: name}}, more...)}
	}
	bounds := []string{"0.1", "0.25", "0.5", "1", "+Inf"}
	var all []prompb.TimeSeries
	for _, le := range bounds {
		all = append(all, named("latency_seconds_bucket", prompb.Label{Name: "le", Value: le}))
	}
	native, memory, unwanted := named("native_latency_seconds"), named("memory_bytes"), named("unwanted_total")
	for i, at := 1, from; at.Before(to); i, at = i+1, at.Add(every) {
		ms, upTo := at.UnixMilli(), 0.0
		for k := range bounds {
			upTo += float64(i * (k + 1))
			all[k].Samples = append(all[k].Samples, prompb.Sample{Timestamp: ms, Value: upTo})
		}
		if i%20 == 0 {
			all[2].Exemplars = append(all[2].Exemplars, prompb.Exemplar{
				Labels: []prompb.Label{{Name: "trace_id", Value: fmt.Sprint("trace-", i)}},
				Value:  0.3 + float64(i%5)/50, Timestamp: ms,
			})
		}
		native.Histograms = append(native.Histograms, prompb.FromIntHistogram(ms, &histogram.Histogram{
			Count: uint64(8 * i), Sum: float64(i), ZeroThreshold: 1e-9, ZeroCount: uint64(i),
			PositiveSpans:   []histogram.Span{{Offset: -2, Length: 3}, {Offset: 2, Length: 1}},
			PositiveBuckets: []int64{int64(i), int64(2 * i), -int64(i), -int64(i)},
		}))
		memory.Samples = append(memory.Samples, prompb.Sample{Timestamp: ms, Value: 3 << 30})
		unwanted.Samples = append(unwanted.Samples, prompb.Sample{Timestamp: ms, Value: 1})
	}
	return append(all, native, memory, unwanted)
}

// metadataOf contains the metadata of the metrics.
var metadataOf = []prompb.MetricMetadata{
	{MetricFamilyName: "http_requests_total", Type: prompb.MetricMetadata_COUNTER, Help: "All requests that were answered, whatever the answer was, since the process began."},
	{MetricFamilyName: "latency_seconds", Type: prompb.MetricMetadata_HISTOGRAM, Unit: "seconds", Help: "How long answers took."},
	{MetricFamilyName: "temperature_celsius", Type: prompb.MetricMetadata_GAUGE, Unit: "celsius", Help: "How warm it is."},
}

func remoteWrite(ctx context.Context, t *testing.T, url, tenant string, series []prompb.TimeSeries) {
	raw, err := (&prompb.WriteRequest{Timeseries: series, Metadata: metadataOf}).Marshal()
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(
		ctx, http.MethodPost, url+"/api/v1/write", bytes.NewReader(snappy.Encode(nil, raw)),
	)
	require.NoError(t, err)
	r.Header.Set("Content-Encoding", "snappy")
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("X-Scope-OrgID", tenant)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusNoContent, answer.StatusCode)
}
