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

// ruleGaps finds missing evaluations in the samples that rules record at an interval, after the evaluating process was
// killed.
//
// On a busy machine, some evaluations may be missing: Prometheus' manager skips evaluations that become due during a
// slow one, and counts them.
type ruleGaps struct {
	interval time.Duration
	// The process was killed between dying and killed. Its number of skipped evaluations was read at dying.
	dying, killed time.Time
	// began is a time before the start of the next process, which runs the evaluations missed until then.
	began time.Time
}

// count returns the number of missing evaluations in gaps of more than two intervals. before counts the missing
// evaluations that became due before the next process started, which this process should have run after its start.
// after counts the other missing evaluations.
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

// leftOut returns the number of evaluations that a process has skipped, and the number of failed evaluations.
func leftOut(t *testing.T, url string) (missed, failed float64) {
	t.Helper()
	return valueOf(t, url, "prometheus_rule_group_iterations_missed_total"),
		valueOf(t, url, "prometheus_rule_evaluation_failures_total")
}

// valueOf returns the sum of a metric of a process over all labels, or 0 if the metric doesn't exist.
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

// stamped is a sample as returned by a process. Its time is in milliseconds.
type stamped struct {
	at int64
	v  float64
}

// parsePoints parses points in the format of the API.
func parsePoints(t *testing.T, points []string) (all []stamped) {
	for _, point := range points {
		at, v := parsePoint(t, point)
		all = append(all, stamped{int64(at*1000 + 0.5), v})
	}
	return all
}

// parsePoint parses a point in the format of the API.
func parsePoint(t *testing.T, point string) (at, v float64) {
	var pair [2]any
	require.NoError(t, json.Unmarshal([]byte(point), &pair))
	_, err := fmt.Sscan(fmt.Sprint(pair[1]), &v)
	require.NoError(t, err)
	return pair[0].(float64), v
}
