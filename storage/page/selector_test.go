package page

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestSelector compares the entries that a selector finds in random pages with a plain comparison of their labels. A
// filter must never exclude a page with matching entries.
func TestSelector(t *testing.T) {
	first := soak.FirstSeed(t)
	for i := range soak.Histories(t, 300) {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 11))
			values, series := randomLabels(rng)
			p := requirePage(t, values)
			filter := requireFilter(t, AppendFilter(nil, values))
			for range 20 {
				matchers := randomMatchers(t, rng)
				s := NewSelector(conditionsOf(matchers))
				var want []byte
				for i, ls := range series {
					matches := true
					for _, m := range matchers {
						matches = matches && m.Matches(ls.Get(m.Name))
					}
					require.Equal(t, matches, s.MatchesRow(values[i]), "%v of %s", matchers, ls)
					if matches {
						want = append(want, byte(i))
					}
				}
				if len(want) > 0 {
					require.True(t, s.MayMatch(filter), "%v", matchers)
				}
				got := s.AppendEntries(nil, p)
				for _, i := range got {
					if series[i].Len() > maxLabels && !slices.Contains(want, i) { // Its value isn't cut.
						want = append(want, i)
					}
				}
				slices.Sort(want)
				require.Equal(t, want, got, "%v", matchers)
			}
		})
	}
}

// randomLabels returns labels rows of one or more layouts, with labels of few and of many values.
func randomLabels(rng *rand.Rand) (values [][]byte, series []labels.Labels) {
	layouts, values1 := 1+rng.IntN(3), 1+rng.IntN(300)
	for range 1 + rng.IntN(MaxEntries) {
		b := labels.NewScratchBuilder(8)
		for k := range 6 {
			if (k+rng.IntN(layouts))%4 == 1 {
				continue
			}
			text := fmt.Sprint("v", rng.IntN(1+k*values1))
			if k == 3 {
				text = fmt.Sprintf("host-%03d.example.com", rng.IntN(values1))
			}
			b.Add(fmt.Sprint("n", k), text)
		}
		if rng.IntN(50) == 0 {
			for k := range maxLabels {
				b.Add(fmt.Sprintf("x%03d", k), "x")
			}
		}
		ls := b.Labels()
		series, values = append(series, ls), append(values, format.AppendLabels(nil, ls))
	}
	if rng.IntN(4) > 0 { // Unmodified.
		order := make([]int, len(values))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return slices.Compare(values[a], values[b]) })
		sorted, of := make([][]byte, len(values)), make([]labels.Labels, len(values))
		for i, k := range order {
			sorted[i], of[i] = values[k], series[k]
		}
		return sorted, of
	}
	return values, series
}

func randomMatchers(t testing.TB, rng *rand.Rand) (matchers []*labels.Matcher) {
	for range 1 + rng.IntN(3) {
		name := fmt.Sprint("n", rng.IntN(7))
		value := fmt.Sprint("v", rng.IntN(30))
		if name == "n3" {
			value = fmt.Sprintf("host-%03d.example.com", rng.IntN(40))
		}
		kind := labels.MatchType(rng.IntN(4))
		switch rng.IntN(6) {
		case 0:
			value = ""
		case 1:
			if kind == labels.MatchRegexp || kind == labels.MatchNotRegexp {
				value += "|v1|v2"
			}
		case 2:
			if kind == labels.MatchRegexp || kind == labels.MatchNotRegexp {
				value = []string{".+", ".*", "v1.*", "(v|)", "host-.*7.*"}[rng.IntN(5)]
			}
		}
		m, err := labels.NewMatcher(kind, name, value)
		require.NoError(t, err)
		matchers = append(matchers, m)
	}
	return matchers
}

// conditionsOf returns the conditions of matchers, as the store does.
func conditionsOf(matchers []*labels.Matcher) (all []LabelCondition) {
	for _, m := range matchers {
		c := LabelCondition{Name: m.Name, Matches: m.Matches}
		if m.Type == labels.MatchEqual && m.Value != "" {
			c.Values = []string{m.Value}
		} else if set := m.SetMatches(); m.Type == labels.MatchRegexp && !slices.Contains(set, "") {
			c.Values = set
		}
		all = append(all, c)
	}
	return all
}
