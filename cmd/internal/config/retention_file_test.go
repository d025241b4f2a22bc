package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/retention"
)

const testDay = 24 * time.Hour

var usualRetention = Retention{Raw: 30 * testDay, FiveMinutes: year, OneHour: 5 * year}

func TestRetentionFile(t *testing.T) {
	r := usualRetention
	require.NoError(t, r.parseFile([]byte(`
tenants:
  team-a: {raw: 7d, 5m: 90d, 1h: 2y}
  team-b: {raw: 2y}
  team-c: {raw: 0}
classes:
  - name: ci
    match: '{job="ci"}'
    raw: 3d
    5m: 30d
    1h: 90d
  - name: noise
    match: ['{__name__=~"debug_.+"}', 'up{env!~"prod|staging"}']
    raw: 1d
`)))
	require.Equal(t, map[string]retention.Durations{
		"team-a": {Raw: 7 * testDay, FiveMinutes: 90 * testDay, OneHour: 2 * year},
		"team-b": {Raw: 2 * year, FiveMinutes: 2 * year, OneHour: 5 * year},
		"team-c": {},
	}, r.Tenants)
	require.Len(t, r.Classes, 2)
	require.Equal(
		t,
		retention.Durations{Raw: 3 * testDay, FiveMinutes: 30 * testDay, OneHour: 90 * testDay},
		r.Classes[0].Durations,
	)
	require.Equal(t, retention.Durations{Raw: testDay, FiveMinutes: year, OneHour: 5 * year}, r.Classes[1].Durations,
		"what isn't said is as for all")
	require.Len(t, r.Classes[1].Match, 2)
	require.Len(t, r.Classes[1].Match[1], 2)
	require.ElementsMatch(t, []string{`__name__="up"`, `env!~"prod|staging"`}, []string{
		r.Classes[1].Match[1][0].String(), r.Classes[1].Match[1][1].String(),
	})
	o := storage.DefaultOptions()
	r.SetOptions(&o)
	require.Equal(t, r.Classes, o.Classes)
	require.Contains(t, r.String(), `; tenant "team-a": raw 1w, 5m 90d, 1h 2y`)
	require.Contains(t, r.String(), `; class "ci": raw 3d, 5m 30d, 1h 90d`)
	require.False(t, r.IsForEver())

	r = usualRetention
	require.NoError(t, r.parseFile(nil), "an empty file says nothing")
	require.Empty(t, r.Tenants)
}

func TestBadRetentionFiles(t *testing.T) {
	class := func(of string) string { return "classes:\n- {name: a, match: '{job=\"a\"}', " + of + "}" }
	many := "classes:\n"
	for i := range retention.MaxClasses + 1 {
		many += "- {name: " + strings.Repeat("a", i+1) + ", match: '{job=\"a\"}', raw: 1d}\n"
	}
	for text, want := range map[string]string{
		"tenant: {a: {raw: 1d}}":                                "unknown key tenant not found",
		"tenants: {a: {raw: 1d}}\n---\ntenants: {b: {raw: 1d}}": "more than one document",
		"tenants: {a: {raw: 1d, 5min: 2d}}":                     "unknown key 5min not found",
		"tenants: [a]":                                          "cannot unmarshal",
		"tenants: {a: {}}":                                      `tenant "a": raw is missing`,
		"tenants: {a: {raw: 1x}}":                               `tenant "a": raw: "1x" must be a duration`,
		"tenants: {a: {raw: 1h}}":                               "must be at least 1d",
		"tenants: {a: {raw: 10d, 5m: 9d}}":                      `tenant "a": 5m: 9d is shorter than raw, 10d`,
		"tenants: {a: {raw: 10d, 5m: 20d, 1h: 15d}}":            `tenant "a": 1h: 15d is shorter than 5m, 20d`,
		"tenants: {a: {raw: 0, 5m: 20d}}":                       "5m: 20d is shorter than raw, forever",
		"tenants: {'': {raw: 10d}}":                             `tenant ""`,
		"classes: [{name: a, raw: 1d}]":                         `class "a": match is missing; set a selector such as '{job="ci"}', or a list of selectors`,
		"classes: [{name: a, match: [], raw: 1d}]":              `class "a": match is missing; set a selector such as '{job="ci"}', or a list of selectors`,
		"classes: [{name: a, match: {job: a}}]":                 `class "a": match is missing; set a selector such as '{job="ci"}', or a list of selectors`,
		"classes: [{name: a, match: '{job=', raw: 1d}]":         `class "a": match: {job=: 1:`,
		"classes: [{name: a, match: '{}', raw: 1d}]":            "match: {}: ",
		"classes: [{match: '{job=\"a\"}', raw: 1d}]":            `class "": the name must be 1 to 64 letters, digits, dots, hyphens and underscores`,
		"classes: [{name: a b, match: x, raw: 1d}]":             `class "a b": the name must be 1 to 64 letters, digits, dots, hyphens and underscores`,
		class("raw: 3d, 5m: 2d"):                                `class "a": 5m: 2d is shorter than raw, 3d`,
		class("5m: 2d"):                                         `class "a": raw is missing`,
		class("keep: 2d"):                                       "unknown key keep not found",
		class("raw: 1d") + "\n- {name: a, match: x, raw: 1d}":   `the class name "a" is used twice`,
		many:      "has 8 classes; the maximum is 7",
		"a: b: c": "mapping values",
	} {
		r := usualRetention
		err := r.parseFile([]byte(text))
		require.ErrorContains(t, err, want, text)
		name := filepath.Join(t.TempDir(), "retention.yml")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		err = r.loadRetentionFile(name)
		require.ErrorContains(t, err, "--retention.file="+name+": ", text)
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "config.", "no names of Go's types")
	}
	r := usualRetention
	require.ErrorContains(t, r.loadRetentionFile(filepath.Join(t.TempDir(), "none.yml")), "no such file")
}

func FuzzRetentionFile(f *testing.F) {
	f.Add("tenants: {a: {raw: 7d}}\nclasses: [{name: ci, match: ['{job=\"ci\"}'], raw: 3d, 5m: 30d}]")
	f.Add("classes: [{name: a, match: &x '{a=\"b\"}', raw: 0}]")
	f.Fuzz(func(t *testing.T, text string) {
		r := usualRetention
		if r.parseFile([]byte(text)) != nil {
			return
		}
		o := storage.DefaultOptions()
		r.SetOptions(&o)
		for _, c := range o.Classes {
			require.NotEmpty(t, c.Match)
			require.False(t, c.Raw == 0 && c.FiveMinutes != 0 || c.OneHour != 0 && c.OneHour < c.FiveMinutes)
		}
	})
}
