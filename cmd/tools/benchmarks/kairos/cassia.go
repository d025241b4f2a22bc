package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// cassia is Cassia on Cassandra. path is the path of the binary.
type cassia struct{ path string }

func (cassia) name() string     { return "cassia" }
func (cassia) keyspace() string { return "cassia" }

func (c cassia) program(_, dir, address string, hosts []string) promrig.Program {
	return promrig.Cassia(c.path, dir, address, "--storage.engine=cassandra",
		"--cassandra.hosts="+strings.Join(hosts, ","), "--cassandra.keyspace="+c.keyspace(), "--retention.raw=365d")
}

func (cassia) endpoint() (string, map[string]string) {
	return "/api/v1/write", map[string]string{
		"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy",
		"X-Prometheus-Remote-Write-Version": "0.1.0",
	}
}

func (cassia) encode(d *dataset, p part) ([]byte, error) {
	var request prompb.WriteRequest
	for _, i := range p.series {
		series := prompb.TimeSeries{Labels: []prompb.Label{{Name: labels.MetricName, Value: metric}}}
		for _, tag := range d.tags[i] {
			series.Labels = append(series.Labels, prompb.Label{Name: tag.Name, Value: tag.Value})
		}
		for k := p.first; k < p.last; k++ {
			series.Samples = append(series.Samples, prompb.Sample{Timestamp: d.Time(i, k), Value: d.Value(i, k)})
		}
		request.Timeseries = append(request.Timeseries, series)
	}
	body, err := request.Marshal()
	return snappy.Encode(nil, body), err
}

func (cassia) finish(ctx context.Context, url string) error {
	return promrig.PostEmpty(ctx, url+"/-/seal")
}

func (cassia) count(ctx context.Context, url string, d *dataset) (int64, error) {
	width := d.End() + 1 - d.StartMs
	answer, err := promrig.API{URL: url}.Query(
		ctx, fmt.Sprintf("sum(count_over_time(%s[%dms]))", metric, width), time.UnixMilli(d.End()),
	)
	if err != nil || answer.Points() != 1 {
		return 0, err
	}
	_, n, err := point(answer.Series[0].Floats[0])
	return int64(n), err
}

func (cassia) query(ctx context.Context, url string, d *dataset) (sums, error) {
	from, to := d.span()
	text := fmt.Sprintf("sum by (%s) (sum_over_time(%s[%dms]))", zoneName, metric, bucket.Milliseconds())
	answer, err := promrig.API{URL: url}.QueryRange(
		ctx, text, time.UnixMilli(from).Add(bucket), time.UnixMilli(to), bucket,
	)
	if err != nil {
		return nil, err
	}
	out := sums{}
	for _, series := range answer.Series {
		zone := strings.TrimSuffix(strings.TrimPrefix(series.Labels, "{"+zoneName+`="`), `"}`)
		for _, text := range series.Floats {
			at, value, err := point(text)
			if err != nil {
				return nil, err
			}
			out.set(zone, at, value)
		}
	}
	return out, nil
}

// point parses a point, in JSON as [seconds, "value"].
func point(text string) (atMs int64, value float64, err error) {
	var pair [2]json.RawMessage
	if err := json.Unmarshal([]byte(text), &pair); err != nil {
		return 0, 0, err
	}
	seconds, err := strconv.ParseFloat(string(pair[0]), 64)
	if err != nil {
		return 0, 0, err
	}
	value, err = strconv.ParseFloat(strings.Trim(string(pair[1]), `"`), 64)
	return int64(math.Round(seconds * 1000)), value, err
}
