package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// smallQuestion is a request with a small response.
type smallQuestion struct {
	what, path string
	params     url.Values
}

// smallRuns is the number of measured runs per question, and smallWarmUp is the number of runs before them.
const (
	smallRuns   = 31
	smallWarmUp = 5
)

// smallQuestions returns requests whose cost is mostly the fixed cost of a selector.
func smallQuestions(d dataset) []smallQuestion {
	end, seconds := d.end(), func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	each := func(n int, between, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, between)
	}
	instant := func(what, text string) smallQuestion {
		return smallQuestion{what, "/api/v1/query", url.Values{"query": {text}, "time": {seconds(end)}}}
	}
	over := func(what, text string, step time.Duration) smallQuestion {
		return smallQuestion{what, "/api/v1/query_range", url.Values{
			"query": {text}, "start": {seconds(d.start())}, "end": {seconds(end)},
			"step": {strconv.Itoa(int(step.Seconds()))},
		}}
	}
	return []smallQuestion{
		instant("`or` of 200 selectors", each(200, " or ", "m_%03d")),
		instant("100 × `sum(m_i)`", each(100, " + ", "sum(m_%03d)")),
		instant("`count({__name__=~\".+\"})`", `count({__name__=~".+"})`),
		over("200 empty selectors over 58 d", each(200, " or ", "nothing_%03d"), time.Hour),
		instant("one series", `m_000{instance="job-0-0.example.net:9100",device="device-0"}`),
		instant("an empty one", "nothing"),
		instant("a rate of one metric", "rate(m_001[10m])"),
		over("one series over 58 d", `m_000{instance="job-0-0.example.net:9100",device="device-0"}`, 6*time.Hour),
		{"`/labels` over 58 d", "/api/v1/labels", url.Values{"start": {seconds(d.start())}, "end": {seconds(end)}}},
		{"`/series` of one metric over 58 d", "/api/v1/series", url.Values{"match[]": {"m_000"}, "start": {seconds(d.start())}, "end": {seconds(end)}}},
	}
}

// askSmall runs the small questions on both servers, which run at the same time, and prints a table.
func askSmall(ctx context.Context, s settings, d dataset) error {
	if err := warm(s.dir); err != nil {
		return err
	}
	var running [2]*promrig.Process
	for i, server := range []server{
		prometheusServer{s.prometheus, filepath.Join(s.dir, "prometheus")},
		cassiaServer{s.cassia, filepath.Join(s.dir, "cassia")},
	} {
		process, err := start(ctx, server)
		if err != nil {
			return err
		}
		defer process.Kill()
		running[i] = process
	}
	fmt.Printf(
		"small questions, of servers that run: median of %d, and the least\n\n| question | Prometheus | Cassia | "+
			"ratio | of the least |\n|---|---:|---:|---:|---:|\n",
		smallRuns,
	)
	for _, q := range smallQuestions(d) {
		if !strings.Contains(q.what, s.only) {
			continue
		}
		times, err := q.sideBySide(ctx, running)
		if err != nil {
			return fmt.Errorf("%s: %w", q.what, err)
		}
		a, b := times[0], times[1]
		ms := func(t []time.Duration) string {
			return fmt.Sprintf("%.2f, %.2f ms", t[len(t)/2].Seconds()*1e3, t[0].Seconds()*1e3)
		}
		fmt.Printf("| %s | %s | %s | %.2f | %.2f |\n",
			q.what, ms(a), ms(b), b[len(b)/2].Seconds()/a[len(a)/2].Seconds(), b[0].Seconds()/a[0].Seconds())
	}
	for _, process := range running {
		if err := process.Terminate(time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// sideBySide runs a question alternately on both servers. It returns the durations per server in ascending order, or an
// error if the numbers of results differ.
func (q smallQuestion) sideBySide(
	ctx context.Context, running [2]*promrig.Process,
) (times [2][]time.Duration, err error) {
	var sizes [2]int
	for run := range smallWarmUp + smallRuns {
		for i, process := range running {
			began := time.Now()
			size, err := q.ask(ctx, process.URL())
			if err != nil {
				return times, err
			}
			if sizes[i] = size; run >= smallWarmUp {
				times[i] = append(times[i], time.Since(began))
			}
		}
	}
	if sizes[0] != sizes[1] {
		return times, fmt.Errorf("%d results, and %d of Prometheus", sizes[1], sizes[0])
	}
	for i := range times {
		slices.Sort(times[i])
	}
	return times, nil
}

// ask runs a question on a server and returns the number of results or names.
func (q smallQuestion) ask(ctx context.Context, server string) (results int, err error) {
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, server+q.path, strings.NewReader(q.params.Encode()),
	)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%w: %s: %.300s", promrig.ErrAPI, response.Status, body)
	}
	var found struct{ Data json.RawMessage }
	var vector struct{ Result []json.RawMessage }
	var list []json.RawMessage
	if err := json.Unmarshal(body, &found); err != nil {
		return 0, err
	}
	if json.Unmarshal(found.Data, &list) == nil {
		return len(list), nil
	}
	err = json.Unmarshal(found.Data, &vector)
	return len(vector.Result), err
}
