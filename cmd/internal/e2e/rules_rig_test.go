package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// ruleGaps lists the evaluations that are missing in samples recorded by rules at an interval, while the evaluating
// process was killed.
//
// On a machine that is busy for seconds some may be missing: Prometheus' manager skips evaluations that become due
// while one takes long, and counts them.
type ruleGaps struct {
	interval time.Duration
	// The process was killed between these times. At the first one its number of skipped evaluations was read.
	dying, killed time.Time
	// began is before the start of the next process, which runs the evaluations missed until then.
	began time.Time
}

// count counts the evaluations that are missing where more than one of two is: those that should have been made before
// a process took over or by its making up for them, and those after that.
func (g ruleGaps) count(t *testing.T, what string, samples []stamped) (before, after float64) {
	t.Helper()
	interval := g.interval.Milliseconds()
	for i, s := range samples[1:] {
		last := samples[i].at
		require.Equal(t, samples[0].at%interval, s.at%interval, "%s: the times at which it is evaluated", what)
		if s.at-last <= 2*interval || s.at > g.dying.UnixMilli() && s.at <= g.killed.UnixMilli() {
			continue // The number of evaluations skipped during this request is unknown.
		}
		t.Logf("%s has a gap from %d to %d", what, last, s.at)
		for at := last + interval; at < s.at; at += interval {
			if at > g.began.UnixMilli() {
				after++
			} else {
				before++
			}
		}
	}
	return before, after
}

// leftOut is how many evaluations a process has left out, and how many have failed.
func leftOut(t *testing.T, url string) (missed, failed float64) {
	t.Helper()
	return valueOf(t, url, "prometheus_rule_group_iterations_missed_total"),
		valueOf(t, url, "prometheus_rule_evaluation_failures_total")
}

// valueOf is the sum of a metric that a process has, or 0.
func valueOf(t *testing.T, url, name string) (sum float64) {
	t.Helper()
	_, text := cassiatest.Server{URL: url}.Get(t, "/metrics")
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		var v float64
		_, err := fmt.Sscan(rest[strings.LastIndex(rest, " ")+1:], &v)
		require.NoError(t, err)
		sum += v
	}
	return sum
}

// stamped is a sample as a process answers it, at a time in milliseconds.
type stamped struct {
	at int64
	v  float64
}

// parsePoints reads points as the API writes them.
func parsePoints(t *testing.T, points []string) (all []stamped) {
	for _, point := range points {
		at, v := parsePoint(t, point)
		all = append(all, stamped{int64(at*1000 + 0.5), v})
	}
	return all
}

// parsePoint reads a point as the API writes it.
func parsePoint(t *testing.T, point string) (at, v float64) {
	var pair [2]any
	require.NoError(t, json.Unmarshal([]byte(point), &pair))
	_, err := fmt.Sscan(fmt.Sprint(pair[1]), &v)
	require.NoError(t, err)
	return pair[0].(float64), v
}
