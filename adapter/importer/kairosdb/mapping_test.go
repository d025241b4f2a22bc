package kairosdb

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMappedNames(t *testing.T) {
	const file = `
metrics:
  - name: cpu.usage
    to: node_cpu_usage
  - match: 'app\.(.+)\.(count|rate)'
    to: app_${1}_$2
  - match: 'stats\.([^.]+)\.requests'
    to: requests_total
    labels: {service: $1, price: $$5}
  - match: 'kairosdb\..*'
    drop: true
  - name: labelled
    labels: {source: old, cluster: eu-2}
tags:
  host: instance
  "data center": dc
drop_tags: [build.id]
labels: {cluster: eu-1}
`
	m, err := ParseMapping([]byte(file))
	require.NoError(t, err)
	tags := map[string]string{"host": "a"}
	for name, c := range map[string]struct {
		metric string
		tags   map[string]string
		want   string
	}{
		"by name":             {"cpu.usage", tags, `{__name__="node_cpu_usage", cluster="eu-1", instance="a"}`},
		"by expression":       {"app.web-1.count", tags, `{__name__="app_web_1_count", cluster="eu-1", instance="a"}`},
		"the whole name":      {"my.app.web.count", tags, `{__name__="my_app_web_count", cluster="eu-1", instance="a"}`},
		"parts are labels":    {"stats.shop.requests", tags, `{__name__="requests_total", cluster="eu-1", instance="a", price="$5", service="shop"}`},
		"a rule's labels":     {"labelled", tags, `{__name__="labelled", cluster="eu-2", instance="a", source="old"}`},
		"a series' own tag":   {"m", map[string]string{"cluster": "us"}, `{__name__="m", cluster="us"}`},
		"dropped and empty":   {"m", map[string]string{"build.id": "7", "x": ""}, `{__name__="m", cluster="eu-1"}`},
		"renamed, with blank": {"m", map[string]string{"data center": "b"}, `{__name__="m", cluster="eu-1", dc="b"}`},
		"underscores":         {"1m.ü:x", map[string]string{"a.b:c": "v", "9": "w"}, `{_9="w", __name__="_1m__:x", a_b_c="v", cluster="eu-1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			mm, ok := m.mapMetric(c.metric)
			require.True(t, ok)
			ls, err := mm.labels(c.tags)
			require.NoError(t, err)
			require.Equal(t, c.want, ls.String())
		})
	}
	_, ok := m.mapMetric("kairosdb.jvm.free_memory")
	require.False(t, ok)

	utf8, err := ParseMapping([]byte("names: utf8"))
	require.NoError(t, err)
	mm, ok := utf8.mapMetric("cpu.usage %")
	require.True(t, ok)
	ls, err := mm.labels(map[string]string{"data center": "a"})
	require.NoError(t, err)
	require.Equal(t, "cpu.usage %", ls.Get("__name__"))
	require.Equal(t, "a", ls.Get("data center"))
	require.NotEqual(t, m.digest, utf8.digest)
}

// TestManualsMapping checks that the manual's example file has the effect that the manual describes.
func TestManualsMapping(t *testing.T) {
	text, err := os.ReadFile("../../../cmd/internal/manual/importing.md")
	require.NoError(t, err)
	_, file, ok := strings.Cut(string(text), "```yaml mapping.yaml\nnames: underscores")
	require.True(t, ok)
	file, _, ok = strings.Cut("names: underscores"+file, "```")
	require.True(t, ok)
	m, err := ParseMapping([]byte(file))
	require.NoError(t, err)
	mm, ok := m.mapMetric("app.web.requests")
	require.True(t, ok)
	ls, err := mm.labels(map[string]string{"host": "a", "data center": "eu", "build": "7"})
	require.NoError(t, err)
	require.Equal(t, `{__name__="app_requests_total", app="web", cluster="old", dc="eu", instance="a"}`, ls.String())
	_, ok = m.mapMetric("kairosdb.jvm.threads")
	require.False(t, ok)
}

func TestTagsThatFitNoLabels(t *testing.T) {
	mm, ok := DefaultMapping().mapMetric("m")
	require.True(t, ok)
	for want, tags := range map[string]map[string]string{
		`tags "a.b" and "a_b" would both become label "a_b"; map one of them to another name under tags, or drop it under drop_tags`: {"a.b": "1", "a_b": "1"},
		`tag "__name__" would become label "__name__"; map it to another name under tags, or drop it under drop_tags`:                {"__name__": "1"},
		`tag "" would become label ""; map it to another name under tags, or drop it under drop_tags`:                                {"": "1"},
	} {
		_, err := mm.labels(tags)
		require.EqualError(t, err, want)
	}
}

func TestMappingFilesThatAreWrong(t *testing.T) {
	for want, file := range map[string]string{
		"unknown key metric":                                                "metric: []",
		"unknown key rename":                                                "metrics: [{name: a, rename: b}]",
		"line 2: unknown key tag":                                           "names: utf8\ntag: {}",
		"cannot unmarshal":                                                  "tags: [a]",
		"more than one document":                                            "tags: {}\n---\ntags: {}",
		`names: unknown value "ascii"; the values are`:                      "names: ascii",
		"metrics, rule 1: must have name or match":                          "metrics: [{to: b}]",
		"metrics, rule 2: must have name or match":                          "metrics: [{name: a, to: b}, {name: a, match: b, to: c}]",
		"has no effect; set to, labels or drop":                             "metrics: [{name: a}]",
		"a dropped metric can't have to or labels":                          "metrics: [{name: a, drop: true, to: b}]",
		`"(" is not a valid regular expression`:                             "metrics: [{match: '(', to: b}]",
		"match has no group 2":                                              "metrics: [{match: 'a(.)', to: 'b$2'}]",
		"match has no group 1x; if a letter follows the group, write ${1}x": "metrics: [{match: 'a(.)', labels: {x: '$1x'}}]",
		`to: "a.b" is not a valid metric name`:                              "metrics: [{name: a, to: a.b}]",
		`tags: "host": "a.b" is not a valid label name`:                     "tags: {host: a.b}",
		`tags: "host": "" is not a valid label name`:                        "tags: {host: ''}",
		`tags: "host" is also in drop_tags`:                                 "tags: {host: a}\ndrop_tags: [host]",
		"__name__ is the metric name":                                       "labels: {__name__: a}",
		`rule 1: labels: "1" is not a valid label name`:                     "metrics: [{name: a, labels: {'1': a}}]",
		"is larger than 1 MiB":                                              strings.Repeat("#", MaxMappingFile+1),
	} {
		_, err := ParseMapping([]byte(file))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "mappingFile")
	}
}

func FuzzMapping(f *testing.F) {
	f.Add("metrics: [{match: 'a(.)', to: 'b$1'}]\ntags: {host: instance}", "ab", "host")
	f.Add("names: utf8", "cpu.usage", "data center")
	f.Fuzz(func(t *testing.T, file, metric, tag string) {
		m, err := ParseMapping([]byte(file))
		if err != nil {
			return
		}
		mm, ok := m.mapMetric(metric)
		if !ok {
			return
		}
		ls, err := mm.labels(map[string]string{tag: "v"})
		if err != nil {
			return
		}
		require.NotEmpty(t, ls.Get("__name__"))
		if m.file.Names == namesUnderscores {
			require.Equal(t, m.metricName(ls.Get("__name__")), ls.Get("__name__"))
		}
	})
}
