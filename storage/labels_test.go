package storage

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// texts calls the function of for the labels of each matching series. It returns the texts that the calls have added,
// sorted and without duplicates.
func (m *readModel) texts(q query.Query, of func(ls labels.Labels, add func(string))) []string {
	seen := map[string]bool{}
	for _, ls := range m.labels {
		if format.MatchesAll(ls, q.Matchers) {
			of(ls, func(s string) { seen[s] = s != "" })
		}
	}
	list := []string{}
	for s, ok := range seen {
		if ok {
			list = append(list, s)
		}
	}
	slices.Sort(list)
	return list
}

func TestNamesAndValuesAgreeWithAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	ts := openTestStore(t, nil)
	m := newReadModel(t, ts, 1, r)
	check := func() {
		for range 60 {
			q := randomQuery(ts, r)
			q.MinT, q.MaxT = 0, 1<<52 // Whole windows, because ranges have a test of their own.
			if r.IntN(4) == 0 {
				q.Matchers = nil
			}
			names, err := ts.LabelNames(t.Context(), q)
			require.NoError(t, err)
			want := m.texts(q, func(ls labels.Labels, add func(string)) {
				ls.Range(func(l labels.Label) { add(l.Name) })
			})
			require.Equal(t, want, names, "%v", q.Matchers)
			for _, name := range []string{"job", "instance", labels.MetricName, "none"} {
				values, err := ts.LabelValues(t.Context(), name, q)
				require.NoError(t, err)
				want := m.texts(q, func(ls labels.Labels, add func(string)) { add(ls.Get(name)) })
				require.Equal(t, want, values, "%s of %v", name, q.Matchers)
				if len(want) > 1 {
					q := q
					q.Limit = len(want) - 1
					values, err = ts.LabelValues(t.Context(), name, q)
					require.NoError(t, err)
					require.Equal(t, want[:q.Limit], values, "%s of %v", name, q.Matchers)
				}
			}
		}
	}
	check()
	require.NoError(t, ts.SealAll(t.Context()))
	check()
}

func TestNamesAndValuesOfARange(t *testing.T) {
	ts := openTestStore(t, nil)
	w := newRowFixture(t, ts.Store, "default")
	today := ts.period.SlotOf(ts.now.UnixMilli())
	daysAgo := func(n int64) int64 { return today - n*12 }
	for n, name := range []string{"a", "b", "c"} {
		slot := daysAgo(int64(n) + 1)
		ls := labels.FromStrings(labels.MetricName, "up", name, "value of "+name, "day", name)
		w.chunk(slot, ls, &chunk.Samples{T: []int64{ts.period.SlotEnd(slot)}, V: []float64{1}})
		w.mark(slot)
	}
	up := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")}
	for _, ms := range [][]*labels.Matcher{nil, up} {
		q := query.Query{
			Tenant: "default", MinT: ts.period.SlotEnd(daysAgo(3)), MaxT: ts.period.SlotEnd(daysAgo(2)), Matchers: ms,
		}
		names, err := ts.LabelNames(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, []string{labels.MetricName, "b", "c", "day"}, names)
		values, err := ts.LabelValues(t.Context(), "day", q)
		require.NoError(t, err)
		require.Equal(t, []string{"b", "c"}, values)
		q.MinT, q.MaxT = q.MaxT, q.MinT
		names, err = ts.LabelNames(t.Context(), q)
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

// TestSeriesOfRangesThatMeetMidnight queries the series of ranges that start or end at midnight. A day includes the
// midnight at its end. Therefore a range that starts at midnight must include the series of the day before, once they
// are sealed. A range that ends at midnight must not include the series of the next day.
func TestSeriesOfRangesThatMeetMidnight(t *testing.T) {
	ts := openTestStore(t, nil)
	midnight := ts.now.Truncate(24 * time.Hour).UnixMilli()
	hour := time.Hour.Milliseconds()
	for name, at := range map[string]int64{
		"noon": midnight - 12*hour, "evening": midnight - hour, "midnight": midnight, "after": midnight + 1,
	} {
		ts.write("default", labels.FromStrings(labels.MetricName, "up", "at", name), sample{at, 1})
	}
	before, day := []string{"evening", "midnight", "noon"}, []string{"after"}
	for _, sealed := range []bool{false, true} {
		if sealed {
			require.NoError(t, ts.SealAll(t.Context()))
		}
		for _, c := range []struct {
			minT, maxT     int64
			unsealed, want []string
		}{
			{midnight - 24*hour, midnight, before, before},
			{midnight - 24*hour, midnight + 1, []string{"after", "evening", "midnight", "noon"}, []string{"after", "evening", "midnight", "noon"}},
			{midnight, midnight + hour, []string{"after", "midnight"}, []string{"after", "evening", "midnight", "noon"}},
			{midnight + 1, midnight + hour, day, day},
		} {
			if !sealed {
				c.want = c.unsealed
			}
			q := query.Query{Tenant: "default", MinT: c.minT, MaxT: c.maxT, LabelsOnly: true, Sorted: true}
			values, err := ts.LabelValues(t.Context(), "at", q)
			require.NoError(t, err)
			require.Equal(
				t, c.want, values, "sealed: %t, from midnight on %d to %d ms", sealed, c.minT-midnight, c.maxT-midnight,
			)
			series, err := ts.Select(t.Context(), q)
			require.NoError(t, err)
			var found []string
			for _, s := range series {
				found = append(found, s.Labels.Get("at"))
			}
			require.Equal(t, values, found)
		}
	}
}
