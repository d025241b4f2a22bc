package index

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

func BenchmarkMatch(b *testing.B) {
	eq, ne, re, nre := labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp
	m := labels.MustNewMatcher
	cases := []struct {
		name string
		ms   []*labels.Matcher
	}{
		{"all", nil},
		{"one", []*labels.Matcher{m(eq, "unique", "17")}},
		{"equal", []*labels.Matcher{m(eq, "job", "web"), m(eq, "code", "500")}},
		{"not", []*labels.Matcher{m(ne, "job", "web"), m(nre, "code", "2..")}},
		{"alternation", []*labels.Matcher{m(re, "instance", "host-1:9100|host-2:9100|host-30:9100")}},
		{"prefix", []*labels.Matcher{m(re, "instance", "host-1.*"), m(eq, "job", "web")}},
		{"contains", []*labels.Matcher{m(re, "path", ".*orders.*")}},
		{"contains-unique", []*labels.Matcher{m(re, "unique", ".*77.*")}},
		{"few-then-regexp", []*labels.Matcher{m(eq, "instance", "host-1:9100"), m(re, "unique", ".*7.*")}},
	}
	for _, n := range []int{20_000, 200_000} {
		set := New(fleet(n, 1))
		for _, c := range cases {
			b.Run(fmt.Sprintf("series=%d/%s", n, c.name), func(b *testing.B) {
				set.Match(c.ms)
				b.ReportAllocs()
				for b.Loop() {
					set.Match(c.ms)
				}
			})
		}
	}
}

func BenchmarkFirstUseOfALabel(b *testing.B) {
	for _, n := range []int{20_000, 200_000} {
		series := fleet(n, 1)
		for _, name := range []string{"job", "unique"} {
			b.Run(fmt.Sprintf("series=%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					New(series).column(b.Context(), name)
				}
			})
		}
	}
}

func BenchmarkNaive(b *testing.B) {
	series := fleet(20_000, 1)
	ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "path", ".*orders.*")}
	for b.Loop() {
		naiveMatch(series, ms)
	}
}
