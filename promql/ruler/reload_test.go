package ruler

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"
)

// TestUpdatesEndEvaluations checks that an update cancels the evaluation of a group that it replaces or removes, even
// an evaluation that never ends, and that rules are listed after that. Evaluations of unchanged groups must continue
// until stop cancels them.
func TestUpdatesEndEvaluations(t *testing.T) {
	const stays = "groups: [{name: stays, interval: 1s, rules: [{record: a, expr: stays}]}"
	for name, next := range map[string]string{
		"changed": stays + ", {name: g, interval: 1s, rules: [{record: b, expr: other}]}]", "removed": stays + "]",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigIn(t, t.TempDir(), time.Now)
			r.file(stays + ", {name: g, interval: 1s, rules: [{record: b, expr: hangs}]}]")
			ruler := r.process().r
			ruler.o.Now = time.Now
			started, ended := make(chan string, 1000), make(chan string, 1000)
			ruler.query = func(ctx context.Context, q string, _ time.Time) (promengine.Vector, error) {
				if q == "other" {
					return nil, nil
				}
				started <- q
				<-ctx.Done()
				ended <- q
				return nil, ctx.Err()
			}
			m := ruler.newManager(t.Context(), testTenant, ruler.files[testTenant], slog.New(slog.DiscardHandler))
			require.ElementsMatch(t, []string{"stays", "hangs"}, []string{<-started, <-started})
			r.file(next)
			files := r.process().r.files[testTenant]
			within(t, func() { require.NoError(t, m.update(files)) })
			require.Len(t, m.RuleGroups(), strings.Count(next, "name:"))
			require.Equal(t, "hangs", <-ended)
			require.Empty(t, ended, "the group that stays goes on")
			within(t, m.stop)
			require.Equal(t, "stays", <-ended)
		})
	}
}
