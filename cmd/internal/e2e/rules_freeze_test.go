package e2e

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// TestRulesOutliveAFreeze suspends the process that evaluates rules, as when a laptop sleeps, and resumes it. The
// process must run the missed evaluations or count them as missed.
func TestRulesOutliveAFreeze(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a real program for half a minute: leave -short out")
	}
	t.Parallel() // Most of the time is spent waiting.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(killedRules), 0o600))
	cassia := start(
		ctx, t, promrig.Cassia(builtCassia(t), dir, cassiatest.FreeAddress(t), "--rule.files=team-a="+dir+"/*.yml"),
	)
	of := promrig.API{URL: cassia.URL() + "/t/team-a"}
	// between returns the recorded samples of tick in a time range.
	between := func(from, to time.Time) (all []stamped) {
		answer, err := of.Query(ctx, `tick[1h]`, time.Now())
		if err != nil || len(answer.Series) != 1 {
			return nil
		}
		for _, s := range parsePoints(t, answer.Series[0].Floats) {
			if s.at > from.UnixMilli() && s.at < to.UnixMilli() {
				all = append(all, s)
			}
		}
		return all
	}
	began := time.Now()
	require.Eventually(t, func() bool { return len(between(began, time.Now())) >= 3 }, cassiatest.Patience,
		100*time.Millisecond, "it evaluates")
	missed, failed := leftOut(t, cassia.URL())
	require.NoError(t, syscall.Kill(cassia.PID(), syscall.SIGSTOP))
	const interval, frozen = 2 * time.Second, 9 * time.Second
	stopped := time.Now()
	time.Sleep(frozen)
	gone := time.Now()
	require.NoError(t, syscall.Kill(cassia.PID(), syscall.SIGCONT))
	// Evaluations that became due more than an interval after the suspension must have been run afterwards.
	from := stopped.Add(interval)
	due := float64(gone.Sub(from)/interval) - 1
	require.Eventually(t, func() bool {
		made := float64(len(between(from, gone)))
		missedNow, failedNow := leftOut(t, cassia.URL())
		return made >= 1 && made+missedNow-missed+failedNow-failed >= due
	}, cassiatest.Patience, 100*time.Millisecond, "what was due while it stood still")
	require.Positive(t, valueOf(t, cassia.URL(), "cassia_rules_caught_up_evaluations_total"))
}
