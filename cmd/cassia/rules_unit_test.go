package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/ruler"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// ruleTests contains the fields of a promtool test file that these tests use.
type ruleTests struct {
	RuleFiles []string       `yaml:"rule_files"`
	Every     model.Duration `yaml:"evaluation_interval"`
	Tests     []ruleTest
}

type ruleTest struct {
	Name     string
	Interval model.Duration
	External map[string]string                 `yaml:"external_labels"`
	Start    int64                             `yaml:"start_timestamp"`
	Input    []struct{ Series, Values string } `yaml:"input_series"`
	Alerts   []struct {
		At       model.Duration `yaml:"eval_time"`
		Name     string         `yaml:"alertname"`
		Expected []struct {
			Labels      map[string]string `yaml:"exp_labels"`
			Annotations map[string]string `yaml:"exp_annotations"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
	Exprs []struct {
		Expr     string
		At       model.Duration `yaml:"eval_time"`
		Expected []struct {
			Labels    string
			Value     float64
			Histogram string
		} `yaml:"exp_samples"`
	} `yaml:"promql_expr_test"`
}

// TestRuleTestsHoldInside checks that promtool's test files pass with promtool, and with the rules evaluated by cassia.
func TestRuleTestsHoldInside(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/rules/*_test.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var f ruleTests
			require.NoError(t, yaml.Unmarshal(text, &f))
			for _, test := range f.Tests {
				t.Run(test.Name, func(t *testing.T) { newRuleRig(t, f, test).run() })
			}
		})
	}
	t.Run("promtool", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts promtool: leave -short out")
		}
		path := cassiatest.Binary(t, "CASSIA_TEST_PROMTOOL", "promtool")
		out, err := exec.CommandContext(
			t.Context(), path, append([]string{"test", "rules"}, files...)...,
		).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

// ruleRig evaluates the rules of one test on a store whose clock the test sets.
type ruleRig struct {
	t       *testing.T
	test    ruleTest
	every   time.Duration
	now     time.Time
	start   time.Time
	ctx     context.Context
	parser  parser.Parser
	store   *storage.Store
	engine  *promql.Engine
	queries *promql.Queryable
	into    *adapter.Appendable
	groups  []*rules.Group
	// input contains the samples of each series that aren't stored yet.
	input []inputSeries
}

type inputSeries struct {
	labels labels.Labels
	values []parser.SequenceValue
}

func newRuleRig(t *testing.T, f ruleTests, test ruleTest) *ruleRig {
	const of = "team-a"
	r := &ruleRig{
		t: t, test: test, every: time.Duration(f.Every), start: time.Unix(test.Start, 0).UTC(),
		ctx: tenant.NewContext(t.Context(), of),
	}
	r.now = r.start
	now := func() time.Time { return r.now }
	r.store = storagetest.Open(t, memory.New(), storagetest.Clock(now), storagetest.KeepForever)
	eo := promql.DefaultOptions()
	r.engine, r.queries, r.parser = promql.NewEngine(eo), promql.NewQueryable(r.store), promql.NewParser(eo.Parser)
	t.Cleanup(func() { require.NoError(t, r.engine.Close()) })
	r.into = adapter.NewAppendable(func(tenant string) adapter.Batch { return r.store.NewBatch(tenant) })
	o := ruler.DefaultOptions()
	o.Interval = time.Duration(test.Interval)
	o.ExternalLabels, o.ExternalURL = labels.FromMap(test.External), &url.URL{}
	o.Engine, o.Queryable, o.Appendable, o.Parser, o.Now = r.engine, r.queries, r.into, r.parser, now
	for _, file := range f.RuleFiles {
		o.Sources = append(o.Sources, ruler.Source{Tenant: of, Glob: filepath.Join("testdata/rules", file)})
	}
	evaluator, err := ruler.New(r.store, o)
	require.NoError(t, err)
	r.groups, err = evaluator.Groups(t.Context(), of)
	require.NoError(t, err)
	for _, in := range test.Input {
		ls, values, err := r.parser.ParseSeriesDesc(in.Series + " " + in.Values)
		require.NoError(t, err)
		r.input = append(r.input, inputSeries{ls, values})
	}
	for _, rule := range r.alertingRules() {
		rule.SetRestored(true)
	}
	return r
}

func (r *ruleRig) alertingRules() (all []*rules.AlertingRule) {
	for _, g := range r.groups {
		all = append(all, g.AlertingRules()...)
	}
	return all
}

// loadSamples stores the input samples up to now.
func (r *ruleRig) loadSamples() {
	app := r.into.Appender(r.ctx)
	due := int(r.now.Sub(r.start)/time.Duration(r.test.Interval)) + 1
	for i, in := range r.input {
		for n := range min(due, len(in.values)) {
			v, at := in.values[n], timestamp.FromTime(r.start.Add(time.Duration(n)*time.Duration(r.test.Interval)))
			var err error
			switch {
			case v.Omitted:
			case v.Histogram != nil:
				_, err = app.AppendHistogram(0, in.labels, at, nil, v.Histogram)
			default:
				_, err = app.Append(0, in.labels, at, v.Value)
			}
			require.NoError(r.t, err)
			r.input[i].values[n].Omitted = true
		}
	}
	require.NoError(r.t, app.Commit())
}

func (r *ruleRig) run() {
	var last model.Duration
	for _, a := range r.test.Alerts {
		last = max(last, a.At)
	}
	for _, e := range r.test.Exprs {
		last = max(last, e.At)
	}
	for ; r.now.Sub(r.start) <= time.Duration(last); r.now = r.now.Add(r.every) {
		r.loadSamples()
		for _, g := range r.groups {
			ruler.EvaluateGroup(r.ctx, g, r.now)
			for _, rule := range g.Rules() {
				require.NoError(r.t, rule.LastError(), "%s at %s", rule.Name(), r.now)
			}
		}
		for _, a := range r.test.Alerts {
			if since := r.now.Sub(r.start); since <= time.Duration(a.At) && time.Duration(a.At) < since+r.every {
				expected := []string{}
				for _, e := range a.Expected {
					of := maps.Clone(e.Labels)
					of[labels.AlertName] = a.Name
					expected = append(expected, labels.FromMap(of).String()+labels.FromMap(e.Annotations).String())
				}
				require.ElementsMatch(r.t, expected, r.firingAlerts(a.Name), "%s after %s", a.Name, a.At)
			}
		}
	}
	for _, e := range r.test.Exprs {
		r.checkQuery(e.Expr, r.start.Add(time.Duration(e.At)), func() (expected []string) {
			for _, s := range e.Expected {
				ls, err := r.parser.ParseMetric(s.Labels)
				require.NoError(r.t, err)
				value := fmt.Sprint(s.Value)
				if s.Histogram != "" {
					_, values, err := r.parser.ParseSeriesDesc("{} " + s.Histogram)
					require.NoError(r.t, err)
					value = promqltest.HistogramTestExpression(values[0].Histogram)
				}
				expected = append(expected, ls.String()+" "+value)
			}
			return expected
		}())
	}
}

// firingAlerts returns the firing alerts of a rule.
func (r *ruleRig) firingAlerts(name string) []string {
	found := []string{}
	for _, rule := range r.alertingRules() {
		for _, a := range rule.ActiveAlerts() {
			if rule.Name() == name && a.State == rules.StateFiring {
				found = append(found, a.Labels.String()+a.Annotations.String())
			}
		}
	}
	return found
}

func (r *ruleRig) checkQuery(expr string, at time.Time, expected []string) {
	vector, err := rules.EngineQueryFunc(r.engine, r.queries)(r.ctx, expr, at)
	require.NoError(r.t, err, expr)
	var got []string
	for _, s := range vector {
		value := fmt.Sprint(s.F)
		if s.H != nil {
			value = promqltest.HistogramTestExpression(s.H)
		}
		got = append(got, s.Metric.String()+" "+value)
	}
	slices.Sort(got)
	slices.Sort(expected)
	require.Equal(r.t, expected, got, "%s at %s", expr, at)
}
