package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// kairosWithin is the max time until KairosDB responds, including restarts. With other loads on its Cassandra node,
// each of ten starts took less than 40 s.
const kairosWithin = 15 * time.Minute

// kairosRig is a real KairosDB with a separate keyspace.
type kairosRig struct {
	*promrig.Process
	keyspace string
}

// startKairosDB starts a KairosDB on a running Cassandra. It skips the test if KairosDB isn't available.
func startKairosDB(ctx context.Context, t *testing.T, hosts []string, keyspace string) *kairosRig {
	t.Helper()
	root, err := promrig.Root()
	require.NoError(t, err)
	script := filepath.Join(root, "docker", "kairosdb", "local")
	if out, err := exec.CommandContext(ctx, script, "check").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED, NO KAIROSDB: %s", bytes.TrimSpace(out))
	}
	address, err := promrig.FreeAddress()
	require.NoError(t, err)
	_, port, _ := strings.Cut(address, ":")
	dir := t.TempDir()
	began := time.Now()
	program := promrig.Program{
		Name: "kairosdb", Path: "/usr/bin/env", Address: address, ReadyPath: "/api/v1/version",
		Log: filepath.Join(dir, "kairosdb.log"),
		Args: []string{
			"KAIROSDB_DIR=" + dir, "KAIROSDB_PORT=" + port, "KAIROSDB_KEYSPACE=" + keyspace, "KAIROSDB_HEAP=256M",
			"KAIROSDB_JAVA_FLAGS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
			"KAIROSDB_CASSANDRA=" + strings.Join(hosts, ","), script, "run",
		},
	}
	p, err := promrig.StartReady(ctx, program)
	// When KairosDB creates its tables, it waits at most 12 s for each, and then exits. This limit isn't configurable.
	// After a restart, KairosDB continues with the existing tables.
	for errors.Is(err, promrig.ErrExited) && time.Since(began) < kairosWithin {
		p, err = promrig.StartReady(ctx, program)
	}
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	t.Logf("KairosDB was up after %s", time.Since(began).Round(100*time.Millisecond))
	return &kairosRig{p, keyspace}
}

// post sends JSON and returns the response, which must have a 2xx status. If KairosDB returns a server error because
// Cassandra doesn't respond in time, post sends the request again.
func (k *kairosRig) post(ctx context.Context, t *testing.T, path string, body any) []byte {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	for began := time.Now(); ; time.Sleep(time.Second) {
		out, status := k.postOnce(ctx, t, path, text)
		if status/100 == 2 {
			return out
		}
		require.Equal(t, 5, status/100, "%s: %d: %s", path, status, out)
		require.Less(t, time.Since(began), cassiatest.Patience, "%s: %d: %s", path, status, out)
	}
}

func (k *kairosRig) postOnce(ctx context.Context, t *testing.T, path string, text []byte) (out []byte, status int) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, k.URL()+path, bytes.NewReader(text))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	out, err = io.ReadAll(answer.Body)
	require.NoError(t, err)
	return out, answer.StatusCode
}

// kairosSeries is a series in the format of KairosDB's API. Points are pairs of time and value.
type kairosSeries struct {
	Name   string            `json:"name"`
	Type   string            `json:"type,omitempty"`
	Tags   map[string]string `json:"tags"`
	Points [][2]any          `json:"datapoints"`
}

// kairosQuery returns a query for all data of a metric in a time range.
func kairosQuery(metric string, from, to int64, tags ...string) map[string]any {
	query := map[string]any{"name": metric}
	if len(tags) > 0 {
		query["group_by"] = []any{map[string]any{"name": "tag", "tags": tags}}
	}
	return map[string]any{"start_absolute": from, "end_absolute": to, "metrics": []any{query}}
}

// kairosValues contains the values by series and time. If a series has multiple values at the same time, it contains
// the largest.
type kairosValues map[string]map[int64]float64

func (v kairosValues) add(series string, at int64, value float64) {
	if v[series] == nil {
		v[series] = map[int64]float64{}
	}
	if had, ok := v[series][at]; ok {
		value = max(had, value)
	}
	v[series][at] = value
}

func (v kairosValues) points() (n int) {
	for _, series := range v {
		n += len(series)
	}
	return n
}

// equal requires that the values are identical bit by bit. It reports the first differences.
func (v kairosValues) equal(t *testing.T, got kairosValues) {
	t.Helper()
	require.Equal(t, slices.Sorted(maps.Keys(v)), slices.Sorted(maps.Keys(got)))
	var wrong []string
	for series, points := range v {
		for at, value := range points {
			if other, ok := got[series][at]; !ok || math.Float64bits(other) != math.Float64bits(value) {
				wrong = append(wrong, fmt.Sprintf("%s at %d: %v, not %v (there: %t)", series, at, other, value, ok))
			}
		}
		for at, value := range got[series] {
			if _, ok := points[at]; !ok {
				wrong = append(wrong, fmt.Sprintf("%s at %d: %v, which KairosDB hasn't", series, at, value))
			}
		}
	}
	require.Empty(t, wrong[:min(len(wrong), 10)], "%d differ", len(wrong))
}

// values reads all numbers of a metric from KairosDB's API. The series are identified by the labels that they have in
// Cassia.
func (k *kairosRig) values(ctx context.Context, t *testing.T, into kairosValues, m kairosMetric, from, to int64) {
	t.Helper()
	var answer struct {
		Queries []struct {
			Results []struct {
				GroupBy []struct{ Name, Type string } `json:"group_by"`
				Tags    map[string][]string
				Values  [][2]json.RawMessage
			}
		}
	}
	text := k.post(
		ctx, t, "/api/v1/datapoints/query", kairosQuery(m.from, from, to, slices.Sorted(maps.Keys(m.tags))...),
	)
	require.NoError(t, json.Unmarshal(text, &answer))
	for _, r := range answer.Queries[0].Results {
		b := labels.NewScratchBuilder(0)
		b.Add("__name__", m.to)
		for name, value := range m.add {
			b.Add(name, value)
		}
		for tag, values := range r.Tags {
			require.Len(t, values, 1, "series are apart")
			if label, ok := m.tags[tag]; ok {
				b.Add(label, values[0])
			}
		}
		b.Sort()
		for _, v := range r.Values {
			at, err := strconv.ParseInt(string(v[0]), 10, 64)
			require.NoError(t, err)
			var value float64
			if n, err := strconv.ParseInt(string(v[1]), 10, 64); err == nil {
				value = float64(n)
			} else if value, err = strconv.ParseFloat(string(v[1]), 64); err != nil {
				require.Equal(t, byte('"'), v[1][0], "a text")
				continue
			}
			into.add(b.Labels().String(), at, value)
		}
	}
}

// cassiaValues returns all raw samples in (from, to] from a Cassia server, by series.
func cassiaValues(ctx context.Context, t *testing.T, url, selector string, from, to int64) kairosValues {
	t.Helper()
	query := fmt.Sprintf("%s[%dms]", selector, to-from)
	answer, err := (promrig.API{URL: url}).Query(ctx, query, time.UnixMilli(to))
	require.NoError(t, err)
	require.Empty(t, answer.Warnings)
	out := kairosValues{}
	for _, s := range answer.Series {
		for _, p := range s.Floats {
			var pair [2]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(p), &pair))
			at, err := strconv.ParseFloat(string(pair[0]), 64)
			require.NoError(t, err)
			value, err := strconv.ParseFloat(strings.Trim(string(pair[1]), `"`), 64)
			require.NoError(t, err)
			out.add(s.Labels, int64(math.Round(at*1000)), value)
		}
	}
	return out
}
