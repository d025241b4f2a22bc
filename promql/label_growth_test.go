package promql

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// growingStore returns a store with 2,000 series of metric big, and ten series each of small and target_info.
func growingStore(t *testing.T, queryBytes int64) *storage.Store {
	store := storagetest.Open(t, memory.New(), storagetest.KeepForever, func(o *storage.Options) {
		o.QueryBytes = queryBytes
	})
	b := store.NewBatch("default")
	for i := range 2000 {
		for _, name := range []string{"big", "small", "target_info"} {
			if name != "big" && i >= 10 {
				continue
			}
			ls := labels.FromStrings(model.MetricNameLabel, name, "a", fmt.Sprint("value", i%5), "id", fmt.Sprint(i),
				"job", "j", "instance", fmt.Sprint(i))
			if name == "target_info" {
				ls = labels.NewBuilder(ls).Set("data", strings.Repeat("d", 2000)).Del("id", "a").Labels()
			}
			storagetest.Add(t, b, ls, storagetest.Samples(0, 15_000, 240, func(k int) float64 {
				return float64(i%7 + k/100)
			})...)
		}
	}
	require.NoError(t, b.Commit(t.Context()))
	return store
}

// nested returns an expression with n nested calls of a function around inner.
func nested(n int, before, inner, after string) string {
	return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
}

// joined returns a query that doubles the length of label a n times.
func joined(n int, inner string) string {
	return nested(n, "label_join(", inner, `, "a", "", "a", "a")`)
}

// allocated returns the number of bytes that f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestLabelsThatGrowAreRefused checks that queries whose functions make labels from labels are rejected before they
// take more memory than a query may.
func TestLabelsThatGrowAreRefused(t *testing.T) {
	const limit = 16 << 20
	store := growingStore(t, limit)
	r := newRivals(t, NewQueryable(store), func(o *Options) { o.Timeout = time.Hour })
	instant, ranged := asked{start: 600_000}, asked{start: 600_000, end: 3_000_000, step: 10 * time.Second}
	for _, c := range []struct {
		about string
		asked asked
	}{
		{"label_join", instant.of(joined(12, "big"))},
		{"label_join", instant.of(joined(20, "big"))},
		{"label_join", ranged.of(joined(20, "big"))},
		{"label_join", instant.of("count(" + joined(14, "big") + ") + 1")},
		{"label_join", instant.of("1 + " + joined(14, "sum by (a, id) (big)") + " and big")},
		{"label_join", instant.of(nested(4, "label_join(", "vector(1)", `, "a", "`+strings.Repeat("s", 500)+`", "a", "a", "a", "a", "a")`))},
		{"label_join", ranged.of(joined(14, "max_over_time("+joined(2, "big")+"[5m:1m])"))},
		{"label_join", instant.of(joined(12, `absent(missing{a="`+strings.Repeat("v", 100)+`"})`))},
		{"label_join", ranged.of(joined(12, "count_values without () (\"a\", big)"))},
		{"label_join", ranged.of(joined(13, "big * on (job) group_left (a) label_replace(small{id=\"0\"}, \"b\", \"\", \"\", \"\")"))},
		{"label_replace", instant.of(nested(9, "label_replace(", "big", `, "a", "$1$1$1$1", "a", "(.*)")`))},
		{"label_replace", ranged.of(nested(12, "label_replace(", "big", `, "a", "${x}${x}", "a", "(?P<x>.*)")`))},
		{"group_left", instant.of("big * on (job) group_left (a) " + joined(12, `small{id="0"}`))},
		{"group_left", ranged.of("big * on (job) group_left () " + joined(12, `small{id="0"}`))},
		{"group_right", instant.of(joined(12, `small{id="0"}`) + " * on (job) group_right (a) big")},
		{"count_values", ranged.of("count_values without () (\"v\", big + on () group_left () (time() * vector(0.001)))")},
		{"info", instant.of("info(label_replace(" + strings.Repeat("big or ", 3) + "big, \"instance\", \"1\", \"\", \"\"))")},
	} {
		var got answer
		n := allocated(func() { got, _ = r.answerOf(c.asked) })
		require.Contains(t, got.err, storage.PlainText(meter.ErrQueryTooLarge.Error())+": "+c.about, "%.200s", c.asked)
		require.Less(t, n, int64(4*limit), "%.200s", c.asked)
	}
}

// TestLabelsAreMadeAsByTheEvaluator checks that the labels of queries within the bound equal those of Prometheus'
// evaluator.
func TestLabelsAreMadeAsByTheEvaluator(t *testing.T) {
	store := growingStore(t, 1<<30)
	r := newRivals(t, NewQueryable(store), func(o *Options) { o.Timeout = time.Hour })
	for _, query := range []string{
		joined(5, "small"),
		`label_replace(small, "b", "$1-$2", "a", "(v)(.*)")`,
		`label_join(label_replace(small, "__name__", "x$1", "id", "(.*)"), "c", ",", "id", "__name__")`,
		`count_values("v", big)`, `count_values by (a) ("v", big)`, `count_values without (id, instance) ("v", big)`,
		`count_values("", big)`, `count_values by (a) ("a", big)`,
		`count_values("v", small) + on (v) count_values("v", small)`, `sum by (v) (count_values by (id) ("v", small))`,
		`count_values("v", missing)`,
		`max_over_time(count_values("v", big)[5m:1m])`, `label_replace(count_values("v", big), "w", "$1", "v", "(.)")`,
		`label_replace(big * on (id) group_left (a) label_replace(small, "b", "x", "", ""), "c", "$1", "a", "(.*)")`,
		`small * on (id) group_right () big`,
		`big * on (job) group_left (b) label_join(small{id="0"}, "b", "-", "a", "id")`,
		`info(small)`, `label_join(info(small), "b", "", "data", "a")`, `info(small, {data=~".+"})`, `info(small, {})`,
		`info(last_over_time(small[10m:1m] @ 420))`,
		`info(label_join(last_over_time(count_values("instance", small)[10m:1m]), "b", "", "instance", "instance"))`,
		`absent(missing{a="b"})`, `label_join(absent(missing{a="b"}), "c", "-", "a", "a")`,
		`label_join(vector(1), "a", "s", "x", "y")`, `label_replace(vector(1), "a", "b", "", "")`,
		`label_join(small, "a", ",")`,
	} {
		for _, a := range []asked{{start: 600_000}, {start: 600_000, end: 1_800_000, step: time.Minute}} {
			d, ok := r.difference(a.of(query))
			require.True(t, ok, query)
			require.Empty(t, d, query)
			got, _ := r.answerOf(a.of(query))
			require.NotContains(t, got.err, storage.PlainText(meter.ErrQueryTooLarge.Error()), query)
		}
	}
}
