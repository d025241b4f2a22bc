package ruler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/cassia-db/cassia/promql/ruler/alerttext"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/tenant"
)

// withAlert returns a rule file that contains an alert between two other rules.
func withAlert(t *testing.T, ls, annotations map[string]string) string {
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "g", "rules": []any{
		map[string]any{"record": "before", "expr": "vector(1)"},
		map[string]any{"alert": "Odd", "expr": "odd > 0", "labels": ls, "annotations": annotations},
		map[string]any{"record": "after", "expr": "vector(2)"},
		map[string]any{"alert": "Fine", "expr": "odd > 0"},
	}}}})
	require.NoError(t, err)
	return string(text)
}

// doubled returns a template that doubles a text the given number of times.
func doubled(times int) string {
	return `{{ $x := "0123456789abcdef" }}` + strings.Repeat(`{{ $x = printf "%s%s" $x $x }}`, times) + `{{ $x }}`
}

func nested(depth int) string {
	var b strings.Builder
	for i := range depth {
		fmt.Fprintf(&b, `{{ define "t%d" }}{{ template "t%d" }}{{ template "t%d" }}{{ end }}`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `{{ define "t%d" }}x{{ end }}{{ template "t0" }}`, depth)
	return b.String()
}

// TestAlertsAreBounded checks that a rule fails if the texts of its alerts would exceed the bounds, for all kinds of
// templates, and that the other rules of its group continue. Without the bounds, Prometheus panics if labels exceed 16
// MiB.
func TestAlertsAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ label, annotation, told string }{
		"annotation of 17 MiB": {annotation: doubled(21),
			told: `annotation "text" of rule "Odd": ruler: alert too large: a function in the template may create`},
		"annotation of 128 KiB": {annotation: doubled(13), told: "the text has more than 65536 bytes"},
		"label": {label: doubled(9),
			told: `label "text" of rule "Odd": ruler: alert too large: the text has more than 4096 bytes`},
		"static label": {label: strings.Repeat("x", 5000), told: "the text has more than 4096 bytes"},
		"loop": {annotation: `{{ range 100000000 }}0123456789abcdef{{ end }}`,
			told: "the text has more than 65536 bytes"},
		"endless loop": {annotation: `{{ range 1000000000000 }}{{ end }}`,
			told: "the template executes more than 50000 steps"},
		"recursion": {annotation: `{{ define "t" }}{{ template "t" }}{{ end }}{{ template "t" }}`,
			told: "steps"},
		"templates": {annotation: nested(60), told: "steps"},
		"width": {annotation: strings.Repeat(`{{ printf "%999999d%999999d%999999d%999999d" 1 2 3 4 }}`,
			100), told: "bytes"},
		"width as an argument": {annotation: strings.Repeat(`{{ printf "%*d%*d" 999999 1 999999 2 }}`, 100),
			told: "bytes"},
		"references": {
			annotation: `{{ $x := printf "%065000d" 1 }}{{ len (reReplaceAll "0" (reReplaceAll "0" "$0$0$0$0" $x) $x) }}`,
			told:       "bytes",
		},
		"width of a billion": {annotation: `{{ printf "%1000000000d" 1 }}`, told: "bytes"},
		"loop over a query": {
			annotation: `{{ range $i := query "odd" }}{{ range 60000 }}{{ $i.Labels.job }}{{ end }}{{ end }}`,
			told:       "the template executes more than 50000 steps",
		},
		"repetitions": {annotation: `{{ $x := printf "%01000d" 1 }}{{ match (printf "(%s){1000}" $x) "a" }}`,
			told: "regular expressions too large"},
		"replaced repetitions": {
			annotation: `{{ $x := printf "%01000d" 1 }}{{ reReplaceAll (printf "(%s){1000}" $x) "b" "a" }}`,
			told:       "regular expressions too large",
		},
		"same argument": {
			annotation: `{{ $x := printf "%065000d" 1 }}{{ len (printf "` + strings.Repeat("%[1]s", 5000) + `" $x) }}`,
			told:       "bytes",
		},
		"map": {annotation: `{{ $x := printf "%065000d" 1 }}{{ args ` + strings.Repeat("$x ",
			1000) + `}}`, told: "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			texts := func(text string) map[string]string {
				if text == "" {
					return nil
				}
				return map[string]string{"text": text}
			}
			r.file(withAlert(t, texts(c.label), texts(c.annotation)))
			r.write(`odd{job="a"}`, 1)
			p := r.process()
			due := p.evaluate()
			for _, g := range p.groups {
				for _, rule := range g.Rules() {
					if rule.Name() != "Odd" {
						require.Equal(t, rules.HealthGood, rule.Health(), "%s: %v", rule.Name(), rule.LastError())
						continue
					}
					require.Equal(t, rules.HealthBad, rule.Health())
					require.ErrorIs(t, rule.LastError(), alerttext.ErrTooLarge)
					require.ErrorContains(t, rule.LastError(), c.told)
					require.NotContains(t, rule.LastError().Error(), "\n")
				}
			}
			require.Equal(t, "1", r.stored("before", due, time.Minute))
			require.Equal(t, "2", r.stored("after", due, time.Minute))
			require.Equal(t, []string{`firing {alertname="Fine", job="a", tenant="team-a"}`}, r.sent)
		})
	}
}

// TestAlertsAreBoundedTogether checks the bound on the texts of all alerts of a rule together.
func TestAlertsAreBoundedTogether(t *testing.T) {
	r := newRig(t)
	r.file(withAlert(t, nil, map[string]string{"text": strings.Repeat("x", 60_000)}))
	app := appendable{r}.Appender(tenant.NewContext(t.Context(), testTenant))
	for i := range maxAlertTexts/60_000 + 1 {
		_, err := app.Append(0, labels.FromStrings(labels.MetricName, "odd", "n", fmt.Sprint(i)), r.now.UnixMilli(), 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	p := r.process()
	p.evaluate()
	for _, g := range p.groups {
		require.ErrorIs(t, g.Rules()[1].LastError(), alerttext.ErrTooLarge)
		require.ErrorContains(t, g.Rules()[1].LastError(), `the alerts of rule "Odd" have`)
		require.Equal(t, rules.HealthGood, g.Rules()[3].Health())
	}
}

// templates are templates as users write them, and templates that are difficult to bound.
var templates = []string{
	"", "text", `{{ $labels.job }} has {{ $value }}`, `{{ $labels.job | toUpper | printf "%-10s|%q" }}`,
	`{{ humanize $value }}{{ humanize1024 4096.0 }} {{ humanizeDuration 100 }}`,
	`{{ if gt $value 0.5 }}much{{ else if eq $labels.job "a" }}a{{ else }}little {{ .Value }}{{ end }}`,
	`{{ with $labels.job }}{{ . }}{{ else }}none{{ end }}`,
	`{{ range query "odd" }}{{ .Labels.job }}={{ .Value }};{{ end }}`,
	`{{ with query "odd" }}{{ . | first | value }}{{ end }}`, `{{ $labels }}{{ . }}`,
	`{{ range $i, $s := sortByLabel "job" (query "odd") }}{{ if $i }},{{ end }}{{ $s.Labels.job }}{{ if gt $i 5 }}{{ break }}{{ end }}{{ end }}`,
	`{{ define "t" }}[{{ . }}]{{ end }}{{ template "t" $value }}{{ block "u" $labels }}{{ .job }}{{ end }}`,
	`{{- $x := 1 -}} {{ $x = 2 }}{{ $x }} {{/* a comment */ -}} end`,
	`{{ $labels.missing }}{{ .Nothing }}`, `{{ nothing }}`, `{{ if }}`,
	`{{ reReplaceAll "(.)" "$1$1" $labels.job }}{{ match "a" "b" }}`, `{{ "é\"x" | html | js | urlquery }}`,
	`{{ title "some words" }}{{ stripPort "a:1" }}{{ stripDomain "a.b:1" }}{{ externalURL }}{{ pathPrefix }}{{ graphLink "up" }}{{ tableLink "up" }}`,
	`{{ args 1 "b" }}{{ printf "%5.1f%%" 1.25 }}{{ print 1 2 "a" }}{{ println "x" }}{{ len $labels.job }}{{ index $labels "job" }}{{ slice "abc" 1 2 }}`,
	`{{ reReplaceAll "(" "" "x" }}`,
	`{{ $externalLabels.a }}{{ $externalURL }}{{ parseDuration "1h" }}{{ toTime 0.0 }}{{ safeHtml "<b>" }}{{ urlQueryEscape "a b" }}{{ now }}`,
	`{{ range $k, $v := $labels }}{{ $k }}{{ $v }}{{ end }}`,
	`{{ with args $value $labels.job }}{{ .arg0 }}{{ .arg1 | printf "%q" }}{{ .arg9 }}{{ print .arg9 }}{{ .arg9 | print }}{{ eq .arg9 nil }}{{ len . }}{{ range $k, $v := . }}{{ $k }}{{ end }}{{ end }}`,
	`{{ $x := args (args 1 "b") }}{{ $x }}{{ $x.arg0.arg1 }}{{ (index $x "arg0").arg0 }}{{ or $labels.missing "c" }}{{ and $value (not $value) }}{{ ne $value 1.0 }}{{ template "t" $x }}{{ define "t" }}{{ . }}{{ end }}`,
	`{{ with $t := toTime 0.0 }}{{ $t }}{{ $t.Format "Mon 15:04" }}{{ ($t.Add 1000000000).Unix }}{{ end }}{{ query "odd" | first | value | humanize }}{{ (query "odd" | first).Labels }}{{ label "job" (query "odd" | first) }}`,
	`{{ range 3 }}{{ . }}{{ end }}{{ range $labels.missing }}x{{ else }}y{{ end }}{{ $x := 1 }}{{ $y := ($x) }}{{ $y }}{{ 'a' }}{{ 1.5 | printf "%v" }}{{ (print 1 2).Nothing }}`,
}

// TestBoundsOfTemplates checks that bounded expansion counts exactly the bytes of Prometheus' expansion, and that the
// estimate is never smaller.
func TestBoundsOfTemplates(t *testing.T) {
	r := newRig(t)
	r.file("groups: []")
	r.write(`odd{job="a",other="b"}`, 2)
	p := r.process()
	ctx := (&evaluation{checked: true}).addToContext(p.ctx)
	found, err := p.r.query(ctx, "odd", r.now)
	require.NoError(t, err)
	require.Len(t, found, 1)
	s := &found[0]
	for _, text := range templates {
		data := template.AlertTemplateData(s.Metric.Map(), map[string]string{}, p.r.externalURL(testTenant).String(),
			*s)
		theirs, err := template.NewTemplateExpander(ctx, alerttext.Definitions+text, "__alert_a", data,
			model.TimeFromUnixNano(r.now.UnixNano()), template.QueryFunc(p.r.ruleQuery), p.r.externalURL(testTenant),
			nil).Expand()
		if err != nil {
			theirs = err.Error()
		}
		c := alertCheck{r: p.r, ctx: ctx, at: r.now, url: p.r.externalURL(testTenant),
			rule: rules.NewAlertingRule("a", nil, 0, 0, s.Metric, s.Metric, s.Metric, "", true, nil)}
		n, err := c.expandedLength(text, maxAnnotations, s)
		require.NoError(t, err, text)
		if strings.HasPrefix(theirs, "error ") {
			require.NotZero(t, n, text)
		} else {
			require.Equal(t, len(theirs), n, "%s: %s", text, theirs)
		}
		require.LessOrEqual(
			t, len(theirs),
			p.r.growthOf(text).MaxLength(labelsTextLength(s.Metric)+len(p.r.externalURL(testTenant).String())), text,
		)
	}
	require.Less(t, p.r.growthOf(templates[3]).MaxLength(1000), maxAnnotations,
		"ordinary templates aren't expanded twice")
}

// panicking is an engine that panics at the query 1 + 1.
type panicking struct{ promengine.QueryEngine }

func (p panicking) NewInstantQuery(ctx context.Context, q promstorage.Queryable, o promengine.QueryOpts, qs string,
	ts time.Time) (promengine.Query, error) {
	if qs == "1 + 1" {
		panic("a bug")
	}
	return p.QueryEngine.NewInstantQuery(ctx, q, o, qs, ts)
}

// TestRulesThatPanic checks that the panic of a rule is counted and set as the rule's health, and that the other rules
// of its group are evaluated, at every position of the rule. Without panics.Recover, the panic isn't caught.
func TestRulesThatPanic(t *testing.T) {
	const good, bad = "{record: %s, expr: vector(1)}", "{record: %s, expr: 1 + 1}"
	for name, c := range map[string][]string{
		"first": {bad, good, good}, "middle": {good, bad, good}, "last": {good, good, bad}, "two": {bad, bad, good},
		"only": {bad}, "all": {bad, bad}, "before the last": {bad, good},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var list []string
			for i, form := range c {
				list = append(list, fmt.Sprintf(form, fmt.Sprint("r", i)))
			}
			r.file("groups: [{name: g, rules: [" + strings.Join(list, ", ") + "]}]")
			p := r.process()
			p.r.query = rules.EngineQueryFunc(panicking{p.r.o.Engine}, p.r.o.Queryable)
			require.Panics(t, func() { p.evaluate() })

			registry := prometheus.NewRegistry()
			defer panics.Recover(slog.New(slog.DiscardHandler), registry)()
			p = r.process()
			p.r.query = rules.EngineQueryFunc(panicking{p.r.o.Engine}, p.r.o.Queryable)
			due := p.evaluate()
			failed := 0
			for _, g := range p.groups {
				for i, rule := range g.Rules() {
					if c[i] == bad {
						failed++
						require.Equal(t, rules.HealthBad, rule.Health())
						require.ErrorIs(t, rule.LastError(), panics.ErrPanicked)
						continue
					}
					require.Equal(t, rules.HealthGood, rule.Health(), rule.LastError())
					require.Equal(t, "1", r.stored(rule.Name(), due, time.Minute))
				}
			}
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP cassia_panics_total Background tasks or parts of queries that were aborted because of a bug, by task.
# TYPE cassia_panics_total counter
cassia_panics_total{work="evaluating rules"} %d
`, failed))))
		})
	}
}

// TestLinksOfAlertsNameTheTenant checks that the links in an alert of a tenant open that tenant's data.
func TestLinksOfAlertsNameTheTenant(t *testing.T) {
	r := newRig(t)
	r.file(withAlert(t, nil, map[string]string{
		"link": `{{ $externalURL }}{{ graphLink "odd" }} {{ externalURL }} {{ pathPrefix }}`,
	}))
	r.write(`odd{job="a"}`, 1)
	r.process().evaluate()
	require.Len(t, r.alerts, 2)
	for _, a := range r.alerts {
		require.Equal(t, "http://cassia:9201/t/team-a/graph?g0.expr=odd+%3E+0&g0.tab=1", a.GeneratorURL)
	}
	require.Equal(t, "http://cassia:9201/t/team-a/graph?g0.expr=odd&g0.tab=0 http://cassia:9201/t/team-a /t/team-a",
		r.alerts[0].Annotations.Get("link"))
	ruler := r.process().r
	require.Equal(t, "http://cassia:9201", ruler.externalURL(tenant.Default).String())
}
