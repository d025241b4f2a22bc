package promql

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/schema"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/query"
)

// steps are n timestamps at equal intervals, in milliseconds. With an @ modifier, all timestamps are the same and step
// is 0.
type steps struct {
	first, step int64
	n           int
}

func (s steps) timeAt(i int) int64 { return s.first + int64(i)*s.step }

func (s steps) last() int64 { return s.timeAt(s.n - 1) }

// fragment is a part of a query that the planner computes without Prometheus' evaluator: an instant selector, or a
// function over a range selector. Its value at step i is computed from the samples with edges.at(i)-width < t <=
// edges.at(i).
type fragment struct {
	// expr is the expression. It is never modified.
	expr     parser.Expr
	matchers []*labels.Matcher
	// function is the name of the function over the range. It is empty for an instant selector.
	function string
	// args are the function's arguments in the form that its implementation expects. scalars are the values of all
	// arguments except the range.
	args    parser.Expressions
	scalars []promengine.Vector
	// width is the width of the windows, in milliseconds: the range, or the lookback of an instant selector.
	width int64
	// eval are the evaluation times of the steps. edges are the right edges of the windows, which differ from the
	// evaluation times if there is an offset or an @ modifier.
	eval, edges steps
	// onlyStats is true if only the count and the sum of histograms are needed.
	onlyStats bool
	// usesStarts is true if the function uses start timestamps.
	usesStarts bool
	// minT is the start of the range that the evaluator would request from a Queryable.
	minT int64
	// onlyPresence is true if only the presence of samples matters, not their values.
	onlyPresence bool
}

// window returns the edges of the window of step i.
func (f *fragment) window(i int) (from, to int64) {
	to = f.edges.timeAt(i)
	return to - f.width, to
}

// keepsName returns true if the fragment's series keep their metric name.
func (f *fragment) keepsName() bool {
	return f.function == "" || f.function == "last_over_time" || f.function == "first_over_time"
}

// metric returns the labels that the series with the stored labels has in the result.
func (f *fragment) metric(stored labels.Labels) labels.Labels {
	if f.keepsName() {
		return stored
	}
	return stored.DropReserved(schema.IsMetadataLabel)
}

// readStart returns the time from which samples are read.
func (f *fragment) readStart() int64 {
	if f.onlyPresence { // Samples before the range are read only for the hints of histograms, which aren't needed here.
		return f.minT
	}
	return subtractClamped(f.minT, hintContext)
}

// open finds the fragment's series of a tenant, in the order in which a Queryable returns them. warn may be called
// until the last series has been read.
func (f *fragment) open(
	ctx context.Context, store *storage.Store, of string, warn func(error),
) ([]*query.SelectedSeries, error) {
	return store.Select(ctx, query.Query{
		Tenant: of, MinT: f.readStart(), MaxT: f.edges.last(),
		Matchers: f.matchers, Warn: warn,
	})
}

// hasUniqueLabels reports whether no two of the fragment's series can have the same labels in the result. If two can,
// the fragment is left to the evaluator, which reports duplicate labels as an error.
func (f *fragment) hasUniqueLabels(series []foundSeries) bool {
	if f.keepsName() || len(series) < 2 {
		return true
	}
	name, plain := series[0].labels.Get(labels.MetricName), true
	for _, s := range series {
		plain = plain && s.labels.Get(labels.MetricName) == name && !s.labels.Has("__type__") &&
			!s.labels.Has("__unit__")
	}
	if plain {
		return true
	}
	seen := make(map[uint64]struct{}, len(series))
	for _, s := range series {
		hash := f.metric(s.labels).Hash()
		if _, ok := seen[hash]; ok {
			return false
		}
		seen[hash] = struct{}{}
	}
	return true
}

// fragmentReader computes a fragment's values, one series after the other. Each goroutine has its own reader. rawReader
// reads samples, rollupReader reads buckets.
type fragmentReader interface {
	// read computes the values of a series at every step and appends the values to out, which must be empty.
	read(s *query.SelectedSeries, out *values) error
	// notes returns the annotations of the function. samples returns the number of samples that were decoded.
	notes() annotations.Annotations
	samples() int64
	// loaded returns the number of samples and buckets for the query's statistics.
	loaded() int64
}

// FragmentStats describes how a fragment of a query was computed.
type FragmentStats struct {
	// Expr is the text of the fragment's expression.
	Expr string `json:"expr"`
	// Segments describe the resolutions that answered the fragment's steps, in order. There are none if the evaluator
	// read raw samples.
	Segments []SegmentStats `json:"segments"`
	// Series is the number of series. Samples is the number of decoded samples and buckets.
	Series  int   `json:"series"`
	Samples int64 `json:"samples"`
	// Duration is the duration of the computation.
	Duration time.Duration `json:"-"`
	// Milliseconds is Duration in milliseconds.
	Milliseconds float64 `json:"milliseconds"`
	// Refused is the reason why the fragment was left to Prometheus' evaluator. It is empty if the planner computed the
	// fragment.
	Refused string `json:"refused,omitempty"`
	// selector is the selector that the evaluator reads because the fragment was left to it.
	selector string
	// named is the metric name of a fragment that was left to the evaluator because this name may be the name of a
	// rollup.
	named string
}

// IsFromRaw returns true if the fragment was left to the evaluator, which read raw samples.
func (f *FragmentStats) IsFromRaw() bool { return f.Refused != "" && len(f.Segments) == 0 }
