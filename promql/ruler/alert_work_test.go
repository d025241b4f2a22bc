package ruler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/template"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/ruler/alerttext"
)

// within fails the test if a function that may hang hasn't returned after a minute.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
	}
}

// shared returns nested maps. Each map contains the same map 8 times, so that the text of the result has 8^levels
// numbers.
func shared(levels int) map[string]any {
	inner := map[string]any{"a": 1}
	for range levels {
		outer := map[string]any{}
		for i := range 8 {
			outer[fmt.Sprint(i)] = inner
		}
		inner = outer
	}
	return inner
}

// TestSharedValuesAreBounded checks that a map that would print 8^13 numbers is rejected before it is printed, in all
// ways in which a template can print it.
func TestSharedValuesAreBounded(t *testing.T) {
	for _, text := range []string{
		`{{ . }}`, `{{ print . | len }}`, `{{ println . | len }}`, `{{ printf "%v" . | len }}`,
		`{{ printf "%s%q%d" 1 2 . | len }}`, `{{ html . | len }}`, `{{ js . | len }}`, `{{ urlquery . | len }}`,
		`{{ . | print | len }}`, `{{ eq . 1 }}`, `{{ eq 1 . }}`, `{{ ne . . }}`, `{{ lt . . }}`, `{{ eq 1 2 3 . }}`,
		`{{ index . "1" }}`, `{{ len . }}`, `{{ args . }}`, `{{ or 0 . }}`, `{{ (args .).arg0 }}`,
		`{{ with . }}{{ . }}{{ end }}`, `{{ range . }}{{ . }}{{ end }}`, `{{ $x := . }}{{ if 1 }}{{ $x }}{{ end }}`,
		`{{ define "t" }}{{ . }}{{ end }}{{ template "t" . }}`, `{{ block "t" . }}{{ print .a }}{{ . }}{{ end }}`,
		`{{ template "t" (or .) }}{{ define "t" }}{{ print . }}{{ end }}`, `{{ humanize . }}`,
		`{{ toUpper (print .) }}`, `{{ title (printf "%s" (index . "1")) }}`, `{{ slice . 1 }}`,
		`{{ match "a" (print .) }}`,
	} {
		t.Run(text, func(t *testing.T) {
			x := alerttext.NewExpansion(t.Context(), &alerttext.WorkCounter{}, maxAnnotations, nil)
			bounded, err := x.Bound("main", text)
			require.NoError(t, err)
			tmpl := template.NewTemplateExpander(t.Context(), bounded, "main", shared(13), model.Time(0), nil, nil, nil)
			tmpl.Funcs(x.Functions())
			within(t, func() { _, err = tmpl.Expand() })
			require.ErrorIs(t, err, alerttext.ErrTooLarge)
			require.EqualError(t, x.Refused(),
				"ruler: alert too large: a value in the template has more than 16777216 bytes")
		})
	}
}

// argsOf returns a template that creates nested maps like the maps that shared returns.
func argsOf(levels int) string {
	return `{{ $a := args 1 2 3 }}` + strings.Repeat(`{{ $a = args $a $a $a $a $a $a $a $a }}`, levels)
}

// TestWorkOfTemplatesIsBounded checks that the work of a template is bounded for all functions, even if the work of
// each call is small.
func TestWorkOfTemplatesIsBounded(t *testing.T) {
	times := func(text string) string { return `{{ range 49000 }}` + strings.Repeat(text, 200) + `{{ end }}` }
	const long = `{{ $x := printf "%01000000d" 1 }}{{ $y := print $x }}`
	for name, text := range map[string]string{
		"printed maps":             argsOf(13) + `{{ printf "%v" $a | len }}`,
		"maps":                     argsOf(13),
		"maps of one":              `{{ $a := args 1 }}{{ range 49000 }}{{ $a = args $a }}{{ end }}`,
		"printed map in a loop":    argsOf(3) + times(`{{ $y := print $a }}`),
		"regular expression":       `{{ reReplaceAll "((.*)(.*)(.*)(.*)){30}" "$0$0" (printf "%1000000d" 1) | len }}`,
		"searches":                 `{{ reReplaceAll "( +y| )" "x" (printf "%100000d" 1) | len }}`,
		"chain of replacements":    `{{ $x := printf "%010000d" 1 }}` + strings.Repeat(`{{ $x = reReplaceAll "0" "`+strings.Repeat("0", 28)+`" $x }}`, 4) + `{{ len $x }}`,
		"many replacements":        long + times(`{{ $z := reReplaceAll "0" "1" $x }}`),
		"match":                    `{{ match "((.*)(.*)(.*)(.*)){30}z" (printf "%1000000d" 1) }}`,
		"many matches":             long + times(`{{ $z := match "(.*)z" $x }}`),
		"compilation":              times(`{{ $z := match "(abcdefghij){500}" "a" }}`),
		"long regular expressions": long + `{{ match $x "a" }}`,
		"nodes":                    `{{ $z := 1 }}` + times(`{{ $z = 1 }}`),
		"calls":                    times(`{{ $z := len "a" }}`),
		"nested calls":             times(`{{ $z := not (not (not 1)) }}`),
		"comparisons":              long + times(`{{ $z := eq $x $y }}`),
		"long constants":           `{{ range 49000 }}{{ $z := eq "` + strings.Repeat("x", 10000) + `" "x" }}{{ end }}`,
		"conversions":              long + times(`{{ $z := title $x }}`),
		"queries":                  times(`{{ $z := query "many" }}`),
		"sorted queries":           `{{ $z := query "many" }}` + times(`{{ $z = sortByLabel "n" $z }}`),
		"sorted maps":              argsOf(1) + times(`{{ range $a }}{{ break }}{{ end }}`),
		"times as formats":         `{{ $t := toTime 1703203200.0 }}{{ $x := "1" }}` + strings.Repeat(`{{ $x = $t.Format $x }}`, 40) + `{{ len $x }}`,
		"nested times":             strings.Repeat(`((toTime 1703203200.0).Format `, 40),
	} {
		if name == "nested times" {
			text = `{{ len ` + text + `"1"` + strings.Repeat(")", 40) + ` }}`
		}
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.file(withAlert(t, nil, map[string]string{"text": text}))
			r.write(`odd{job="a"}`, 1)
			p := r.process()
			p.r.ledger.limit = 0 // The memory of the queried results has a lower bound.
			query := p.r.query
			p.r.query = func(ctx context.Context, q string, at time.Time) (promengine.Vector, error) {
				if q == "many" {
					return make(promengine.Vector, 10_000), nil
				}
				return query(ctx, q, at)
			}
			within(t, func() { p.evaluate() })
			for _, g := range p.groups {
				require.ErrorIs(t, g.Rules()[1].LastError(), alerttext.ErrTooLarge)
				require.Regexp(t,
					"units of work|a value in the template has more than|a function in the template may create",
					g.Rules()[1].LastError().Error())
				require.Equal(t, rules.HealthGood, g.Rules()[3].Health())
			}
		})
	}
}

// TestWorkIsBoundedTogether checks that the bound applies to all templates of a rule together.
func TestWorkIsBoundedTogether(t *testing.T) {
	r := newRig(t)
	r.file(withAlert(t, nil, map[string]string{"text": `{{ range 20000 }}{{ $x := printf "%0100d" 1 }}{{ end }}`}))
	for i := range 10 {
		r.write(fmt.Sprintf(`odd{n="%d"}`, i), 1)
	}
	p := r.process()
	within(t, func() { p.evaluate() })
	for _, g := range p.groups {
		require.ErrorIs(t, g.Rules()[1].LastError(), alerttext.ErrTooLarge)
		require.ErrorContains(t, g.Rules()[1].LastError(),
			"the templates of the rule's alerts need more than 134217728 units of work")
	}
}

// TestExpansionsEndWithTheirContext checks that an expansion ends when its context ends, at any point of the expansion.
func TestExpansionsEndWithTheirContext(t *testing.T) {
	r := newRig(t)
	r.file("groups: []")
	r.write(`odd{job="a"}`, 1)
	p := r.process()
	found, err := p.r.query(p.ctx, "odd", r.now)
	require.NoError(t, err)
	for _, text := range []string{`{{ . }}`, `{{ len . }}`, `{{ match "a*" "b" }}`, `{{ reReplaceAll "a*" "b" "c" }}`,
		`{{ toUpper "x" }}`, `{{ printf "x" }}`, `{{ range 10 }}{{ end }}`} {
		ctx, cancel := contextOf(t)
		ctx = (&evaluation{}).addToContext(ctx)
		cancel()
		c := alertCheck{r: p.r, ctx: ctx, at: r.now, url: p.r.externalURL(testTenant),
			rule: rules.NewAlertingRule("a", nil, 0, 0, found[0].Metric, found[0].Metric, found[0].Metric, "", true,
				nil)}
		_, err := c.expandedLength(text, maxAnnotations, &found[0])
		require.ErrorIs(t, err, context.Canceled, text)
	}
}
