package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/promql/api"
)

// result holds the costs of a question in both systems. For Cassia, it holds the costs by resolution.
type result struct {
	question   question
	prometheus taken
	cassia     map[string]compared
}

// taken holds the median costs of a question.
type taken struct {
	time, cpu time.Duration
	bytes     int // size of the response
}

// compared holds the costs of a question in Cassia, and the difference between its result and Prometheus' result.
type compared struct {
	taken
	// from is the resolution from which the result was computed, as reported by Cassia.
	from string
	difference
}

// exact reports whether, according to Cassia, the result equals one computed from raw samples.
func (c compared) exact() bool {
	return !strings.Contains(c.from, "snapped") && !strings.Contains(c.from, "widened") &&
		!strings.Contains(c.from, "approximate")
}

// wrong describes a difference that isn't allowed. It returns "" if there is none.
func (c compared) wrong() string {
	switch {
	case c.shape != "":
		return c.shape
	case c.exact() && c.relative > tolerance:
		return fmt.Sprintf("a relative difference of %g, though it was answered from %q", c.relative, c.from)
	default:
		return ""
	}
}

// tolerance is the max relative difference between sums of the same numbers in different orders.
const tolerance = 1e-9

// ask runs all questions in both systems.
func ask(ctx context.Context, s settings, d dataset) ([]result, error) {
	prometheus := prometheusServer{s.prometheus, filepath.Join(s.dir, "prometheus")}
	cassia := cassiaServer{s.cassia, filepath.Join(s.dir, "cassia")}
	if err := warm(s.dir); err != nil {
		return nil, err
	}
	var results []result
	for _, q := range questions(d) {
		if !strings.Contains(q.String(), s.only) {
			continue
		}
		r := result{question: q, cassia: map[string]compared{}}
		body, took, _, err := measure(ctx, prometheus, q, "", s.repeat)
		if err != nil {
			return nil, fmt.Errorf("prometheus: %s: %w", q, err)
		}
		want, err := parseAnswer(body)
		if err != nil {
			return nil, err
		}
		r.prometheus = took
		progress("%s: prometheus %.3f s, %.3f s of CPU, %d points",
			q, took.time.Seconds(), took.cpu.Seconds(), want.points())
		for _, resolution := range strings.Split(s.resolutions, ",") {
			body, took, from, err := measure(ctx, cassia, q, resolution, s.repeat)
			if err != nil {
				return nil, fmt.Errorf("cassia: %s, %s: %w", q, resolution, err)
			}
			got, err := parseAnswer(body)
			if err != nil {
				return nil, err
			}
			r.cassia[resolution] = compared{took, from, differenceOf(want, got)}
			progress("  %s: %.3f s, %.3f s of CPU, from %q, relative difference %.1e %s", resolution,
				took.time.Seconds(), took.cpu.Seconds(), from, r.cassia[resolution].relative,
				r.cassia[resolution].shape)
			if s.profile != "" {
				if err := profile(ctx, cassia, q, resolution, s.profile); err != nil {
					return nil, err
				}
			}
		}
		results = append(results, r)
	}
	return results, nil
}

// measure runs a question the given number of times, each in a new process. It returns the last response and the median
// costs.
func measure(
	ctx context.Context, s server, q question, resolution string, repeat int,
) (body []byte, took taken, from string, err error) {
	var times, cpus []time.Duration
	for range repeat {
		var once taken
		if body, once, from, err = askNew(ctx, s, q, resolution); err != nil {
			return nil, taken{}, "", err
		}
		times, cpus = append(times, once.time), append(cpus, once.cpu)
	}
	slices.Sort(times)
	slices.Sort(cpus)
	return body, taken{time: times[len(times)/2], cpu: cpus[len(cpus)/2], bytes: len(body)}, from, nil
}

// askNew starts a server, runs one question and stops the server.
func askNew(
	ctx context.Context, s server, q question, resolution string,
) (body []byte, took taken, from string, err error) {
	process, err := start(ctx, s)
	if err != nil {
		return nil, taken{}, "", err
	}
	defer process.Kill()
	before, err := cpuOf(process.PID())
	if err != nil {
		return nil, taken{}, "", err
	}
	began := time.Now()
	if body, from, err = get(ctx, process.URL(), q, resolution); err != nil {
		return nil, taken{}, "", err
	}
	took.time = time.Since(began)
	after, err := cpuOf(process.PID())
	if err != nil {
		return nil, taken{}, "", err
	}
	took.cpu = after - before
	return body, took, from, process.Terminate(time.Minute)
}

// get sends a question. Responses aren't compressed, because compression would add the same cost to both systems.
func get(ctx context.Context, server string, q question, resolution string) (body []byte, from string, err error) {
	seconds := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	params := url.Values{
		"query": {q.text}, "start": {seconds(q.start)}, "end": {seconds(q.end)},
		"step": {strconv.Itoa(int(q.step.Seconds()))},
	}
	if resolution != "" {
		params.Set("resolution", resolution)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/query_range?"+params.Encode(), nil)
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		return nil, "", err
	}
	if response.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("%w: %s: %.300s", promrig.ErrAPI, response.Status, body)
	}
	return body, response.Header.Get(api.ResolutionHeader), nil
}

// profileFor is the duration of a profile, during which a question is repeated.
const profileFor = 5 * time.Second

// profile writes a CPU profile of a server while a question is repeated.
func profile(ctx context.Context, s server, q question, resolution, dir string) error {
	process, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer process.Kill()
	done := make(chan error, 1)
	go func() {
		var err error
		for end := time.Now().Add(profileFor + time.Second); err == nil && time.Now().Before(end); {
			_, _, err = get(ctx, process.URL(), q, resolution)
		}
		done <- err
	}()
	text, err := fetch(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", process.URL(), int(profileFor.Seconds())))
	if err != nil {
		return err
	}
	if err := <-done; err != nil {
		return err
	}
	name := strings.NewReplacer("/", "_", " ", "_").Replace(q.String()) + "_" + resolution + ".pprof"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		return err
	}
	return process.Terminate(time.Minute)
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}
