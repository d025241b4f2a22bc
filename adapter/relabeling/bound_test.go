package relabeling

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
)

// A series is rejected if rules make its labels longer than allowed; other series of the request are stored. Without a
// bound, 22 rules that double a label would panic, and a few more would exhaust the memory.
func TestRulesThatGrowLabels(t *testing.T) {
	const double = "- {source_labels: [grow, grow], separator: '', regex: (.+), target_label: grow}\n"
	for name, c := range map[string]struct{ rules, rule string }{
		"doubled 22 times": {strings.Repeat(double, 22), "rule 16 "},
		"doubled 60 times": {strings.Repeat(double, 60), "rule 16 "},
		"replacement":      {"- {source_labels: [long], target_label: grow, regex: '(.+)', replacement: '" + strings.Repeat("$1", 100) + "'}", "rule 1 "},
		"name":             {"- {source_labels: [long], target_label: 'a_" + strings.Repeat("$1", 100) + "', regex: '(.+)'}", "rule 1 "},
		"joined":           {"- {source_labels: [" + strings.Repeat("long,", 500) + "long], target_label: grow}", "rule 1 "},
		"only matched":     {"- {source_labels: [" + strings.Repeat("long,", 500) + "long], action: drop, regex: x}", "rule 1 "},
		"many copies":      {strings.Repeat("- {action: labelmap, regex: '(.+)', replacement: 'x$1'}\n", 100), "rule "},
		"upper case":       {strings.Repeat(double, 15) + "- {source_labels: [grow], target_label: up, action: uppercase}\n" + strings.Repeat(double, 9), "rule 16 "},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "")
			before := []string{`{__name__="other", job="a"} [1]`}
			rules := c.rules + "\n- {regex: grow|up|long, action: labeldrop}"
			if strings.Contains(c.rules, "labelmap") { // labelmap copies the labels of all series
				before = nil
			}
			r.set(rules)
			errs := r.send("t", "up,grow=abcd,long="+strings.Repeat("x", 4000), "other,job=a")
			var rejected *adapter.RejectedError
			require.ErrorAs(t, errs[0], &rejected)
			require.Equal(t, storage.ReasonSeriesTooLong, rejected.Reason)
			require.ErrorContains(t, errs[0], c.rule)
			require.ErrorContains(t, errs[0], `in series "{__name__=\"up\"`)
			require.Equal(t, before, r.stored("t"))

			n := 0.0
			for i := range r.live.table.Load().RulesOf("t").configs {
				n += float64(r.live.table.Load().RulesOf("t").total(i).rejected)
			}
			require.NotZero(t, n)
			require.Positive(t, testutil.CollectAndCount(r.live, "cassia_relabel_refused_total"))
			_, ok := r.live.Metadata("t", "up", "gauge")
			require.Equal(t, !strings.Contains(c.rules, "__name__"), ok)

			table, err := Parse([]byte(rules))
			require.NoError(t, err)
			r.set("")
			r.send("t", "up,grow=abcd,long="+strings.Repeat("x", 4000))
			o := TrialOptions{Tenant: "t", MinT: r.now - 1000, MaxT: r.now}
			trial, err := RunTrial(t.Context(), r.store, table, o)
			require.NoError(t, err)
			require.Positive(t, trial.Refused.Series)
			require.Contains(t, trial.Refusal, "may create labels longer than")
		})
	}
}

// Rules may join labels, and shorten or drop long labels: only the growth of labels is bounded.
func TestRulesOfLongLabels(t *testing.T) {
	r := newRig(t, `
- {source_labels: [long], regex: "x{1000}.*", action: drop}
- {source_labels: [a, b, c, long], target_label: __tmp}
- {source_labels: [__tmp], regex: "(.*;)(.*)", target_label: joined, replacement: "$1"}
- {regex: "__tmp|long", action: labeldrop}
`)
	long := labels.FromStrings("__name__", "up", "a", "1", "b", "2", "c", "3", "long", strings.Repeat("y", 60_000))
	in := r.intake("t")
	require.NoError(t, in.Float(long, r.now, 0, 1))
	dropped := labels.NewBuilder(long).Set("long", strings.Repeat("x", 300_000)).Labels()
	require.ErrorIs(t, in.Float(dropped, r.now, 0, 1), adapter.ErrDropped)
	require.NoError(t, in.Commit())
	require.Equal(t, []string{`{__name__="up", a="1", b="2", c="3", joined="1;2;3;"} [1]`}, r.stored("t"))
}

// If the store rejects a series after rules have changed it, the error mentions the rules.
func TestRefusedAfterRelabeling(t *testing.T) {
	r := newRig(t, "- {source_labels: [a, a], separator: '', target_label: a}")
	errs := r.send("t", "up,a="+strings.Repeat("x", 3000))
	require.ErrorContains(t, errs[0], "label_value_too_long")
	require.ErrorContains(t, errs[0], "(after relabeling)")
}
