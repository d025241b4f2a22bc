package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// kairosdb is a real KairosDB, which docker/kairosdb/local runs.
type kairosdb struct{ batch int }

func (kairosdb) name() string     { return "kairosdb" }
func (kairosdb) keyspace() string { return "kairosdb" }

func (k kairosdb) program(root, dir, address string, hosts []string) promrig.Program {
	_, port, _ := strings.Cut(address, ":")
	return promrig.Program{
		Name: "kairosdb", Path: "/usr/bin/env", Address: address, ReadyPath: "/api/v1/version",
		Log: filepath.Join(dir, "kairosdb.log"),
		Args: []string{
			"KAIROSDB_DIR=" + dir, "KAIROSDB_PORT=" + port, "KAIROSDB_KEYSPACE=" + k.keyspace(),
			"KAIROSDB_CASSANDRA=" + strings.Join(hosts, ","), "KAIROSDB_BATCH=" + strconv.Itoa(k.batch),
			filepath.Join(root, "docker", "kairosdb", "local"), "run",
		},
	}
}

func (kairosdb) endpoint() (string, map[string]string) {
	return "/api/v1/datapoints", map[string]string{"Content-Type": "application/gzip"}
}

// encode writes the JSON by hand, because KairosDB parses numbers with a decimal point as doubles and numbers without
// one as integers.
func (kairosdb) encode(d *dataset, p part) ([]byte, error) {
	var text []byte
	for n, i := range p.series {
		text = append(text, "[,"[min(n, 1)])
		text = append(text, `{"name":"`+metric+`","tags":{`...)
		for t, tag := range d.tags[i] {
			if t > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendQuote(text, tag.Name)
			text = append(text, ':')
			text = strconv.AppendQuote(text, tag.Value)
		}
		text = append(text, `},"datapoints":`...)
		for k := p.first; k < p.last; k++ {
			text = append(text, "[,"[min(k-p.first, 1)])
			text = append(text, '[')
			text = strconv.AppendInt(text, d.Time(i, k), 10)
			text = append(text, ',')
			text = appendNumber(text, d.Value(i, k), d.whole[i])
			text = append(text, ']')
		}
		text = append(text, "]}"...)
	}
	text = append(text, ']')
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(text)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// appendNumber appends a number without an exponent, because KairosDB parses 3e-7, which has no decimal point, as the
// integer 0.
func appendNumber(to []byte, v float64, whole bool) []byte {
	from := len(to)
	to = strconv.AppendFloat(to, v, 'f', -1, 64)
	if !whole && bytes.IndexByte(to[from:], '.') < 0 {
		to = append(to, ".0"...)
	}
	return to
}

// finish does nothing, because KairosDB stores each point in its final form.
func (kairosdb) finish(context.Context, string) error { return nil }

// kairosAnswer contains the fields of a query response that are used.
type kairosAnswer struct {
	Queries []struct {
		Results []struct {
			Tags   map[string][]string `json:"tags"`
			Values [][2]float64        `json:"values"`
		} `json:"results"`
	} `json:"queries"`
}

// ask runs an aggregator over (from, to], grouped by zone. The first bucket starts a millisecond after from, so that
// each bucket contains the same samples as one of PromQL's left-open ranges. By default, KairosDB would align the
// buckets to the clock.
func (kairosdb) ask(ctx context.Context, url, aggregator string, widthMs, from, to int64) (kairosAnswer, error) {
	var answer kairosAnswer
	query := fmt.Sprintf(
		`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":%q,"group_by":[{"name":"tag","tags":[%q]}],`+
			`"aggregators":[{"name":%q,"align_start_time":true,"align_sampling":false,"sampling":{"value":%d,"unit":"milliseconds"}}]}]}`,
		from+1, to, metric, zoneName, aggregator, widthMs,
	)
	text, _, err := post(ctx, http.DefaultClient, url+"/api/v1/datapoints/query",
		map[string]string{"Content-Type": "application/json"}, strings.NewReader(query))
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(text, &answer)
}

func (k kairosdb) count(ctx context.Context, url string, d *dataset) (int64, error) {
	answer, err := k.ask(ctx, url, "count", d.End()+1-d.StartMs, d.StartMs-1, d.End())
	var n int64
	for _, q := range answer.Queries {
		for _, r := range q.Results {
			for _, v := range r.Values {
				n += int64(v[1])
			}
		}
	}
	return n, err
}

func (k kairosdb) query(ctx context.Context, url string, d *dataset) (sums, error) {
	from, to := d.span()
	answer, err := k.ask(ctx, url, "sum", bucket.Milliseconds(), from, to)
	out := sums{}
	for _, q := range answer.Queries {
		for _, r := range q.Results {
			if len(r.Values) == 0 || len(r.Tags[zoneName]) != 1 {
				continue
			}
			for _, v := range r.Values {
				out.set(r.Tags[zoneName][0], int64(v[0])-1+bucket.Milliseconds(), v[1])
			}
		}
	}
	return out, err
}
