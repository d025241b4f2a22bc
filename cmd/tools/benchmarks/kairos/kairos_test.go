package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/bench"
)

func small(t *testing.T) *dataset {
	t.Helper()
	d, err := newDataset(bench.Workload{Series: 47, Steps: 100, IntervalMs: 15_000, StartMs: 1_700_000_100_000})
	require.NoError(t, err)
	return d
}

func TestPartsHoldEverySampleOnce(t *testing.T) {
	d := small(t)
	for _, c := range []struct{ senders, most int }{{1, 1}, {1, 10_000}, {4, 30}, {4, 5}, {100, 7}} {
		seen := map[[2]int]int{}
		for sender := range c.senders {
			last := 0
			for _, p := range d.parts(sender, c.senders, c.most) {
				require.LessOrEqual(t, len(p.series)*(p.last-p.first), c.most)
				require.GreaterOrEqual(t, p.first, last, "in the order of time")
				last = p.first
				for _, i := range p.series {
					for k := p.first; k < p.last; k++ {
						seen[[2]int{i, k}]++
					}
				}
			}
		}
		require.Len(t, seen, d.Series*d.Steps, "%+v", c)
		for sample, n := range seen {
			require.Equal(t, 1, n, "%v %+v", sample, c)
		}
	}
}

func TestNumbersKeepTheirKind(t *testing.T) {
	for _, c := range []struct {
		value float64
		whole bool
		text  string
	}{
		{3, true, "3"}, {3, false, "3.0"}, {-0.5, false, "-0.5"}, {3e-7, false, "0.0000003"},
		{1e21, true, "1000000000000000000000"},
	} {
		require.Equal(t, c.text, string(appendNumber([]byte("."), c.value, c.whole)[1:]))
	}
}

// TestBothGetTheSame checks that the requests to both systems contain the same samples.
func TestBothGetTheSame(t *testing.T) {
	d := small(t)
	p := part{series: []int{3, 40}, first: 10, last: 13}

	body, err := kairosdb{}.encode(d, p)
	require.NoError(t, err)
	unzipped, err := gzip.NewReader(bytes.NewReader(body))
	require.NoError(t, err)
	var points []struct {
		Name       string
		Tags       map[string]string
		Datapoints [][2]float64
	}
	require.NoError(t, json.NewDecoder(unzipped).Decode(&points))

	body, err = cassia{}.encode(d, p)
	require.NoError(t, err)
	body, err = snappy.Decode(nil, body)
	require.NoError(t, err)
	var request prompb.WriteRequest
	require.NoError(t, request.Unmarshal(body))

	require.Len(t, points, 2)
	require.Len(t, request.Timeseries, 2)
	for n, series := range request.Timeseries {
		tags := map[string]string{}
		for _, l := range series.Labels {
			tags[l.Name] = l.Value
		}
		require.Equal(t, points[n].Name, tags["__name__"])
		delete(tags, "__name__")
		require.Equal(t, tags, points[n].Tags)
		require.Len(t, points[n].Datapoints, 3)
		for i, sample := range series.Samples {
			require.Equal(t, [2]float64{float64(sample.Timestamp), sample.Value}, points[n].Datapoints[i])
		}
	}
}

// TestAnswersMeetAtTheBucketsEnd checks that the clients of both systems parse the same sums to equal results,
// including the times of the buckets. A fake server returns the sums in the formats of both systems.
func TestAnswersMeetAtTheBucketsEnd(t *testing.T) {
	d := small(t)
	from, to := d.span()
	require.Equal(t, int64(25*time.Minute/time.Millisecond), to-from)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/datapoints/query":
			text, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Contains(t, string(text), fmt.Sprintf(`"start_absolute":%d,`, from+1))
			require.Contains(t, string(text), `"align_sampling":false`)
			_, _ = io.WriteString(w,
				`{"queries":[{"results":[{"tags":{"zone":["zone-1"],"field":["a","b"]},"values":[[1700000100001,5],[1700000400001,7.5]]}]}]}`)
		case "/api/v1/query_range":
			require.Equal(t, "1700000400.000", r.URL.Query().Get("start"))
			_, _ = io.WriteString(w,
				`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"zone":"zone-1"},"values":[[1700000400,"5"],[1700000700,"7.5"]]}]}}`)
		}
	}))
	defer server.Close()
	one, err := kairosdb{}.query(context.Background(), server.URL, d)
	require.NoError(t, err)
	other, err := cassia{}.query(context.Background(), server.URL, d)
	require.NoError(t, err)
	require.Equal(t, 2, one.points())
	require.NoError(t, one.difference(other))

	other.set("zone-1", 1700000700000, 7.6)
	require.ErrorContains(t, one.difference(other), "zone-1")
	delete(other, "zone-1")
	require.Error(t, one.difference(other))
}
