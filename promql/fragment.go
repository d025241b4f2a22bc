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

// steps are n moments at equal distances, milliseconds. With an @ modifier all are the same: step is 0.
type steps struct {
	first, step int64
	n           int
}

func (s steps) at(i int) int64 { return s.first + int64(i)*s.step }

func (s steps) last() int64 { return s.at(s.n - 1) }

// fragment is a piece of a query that the planner computes without Prometheus' evaluator: an instant selector, or a function
// over a range selector. Its value at step i is computed from the samples with edges.at(i)-width < t <= edges.at(i).
type fragment struct {
	// expr is the expression. It is never modified.
	expr     parser.Expr
	matchers []*labels.Matcher
	// function is the name of the function over the range; it is empty for an instant selector.
	function string
	// args are the function's arguments, as its implementation wants to see them; scalars are the values of
	// those that aren't the range.
	args    parser.Expressions
	scalars []promengine.Vector
	// width of the windows, milliseconds: the range, or an instant selector's lookback.
	width int64
	// eval are the times at which the evaluator asks, edges the right edges of the windows, which differ from
	// them by offset and @.
	eval, edges steps
	// stats: of histograms only count and sum are wanted.
	stats bool
	// starts: the function uses start timestamps.
	starts bool
	// minT is from where the ordinary Queryable would be asked to read.
	minT int64
	// counted: only whether the series have samples matters, not their values.
	counted bool
}

// window returns the edges of the window of step i.
func (p *fragment) window(i int) (from, to int64) {
	to = p.edges.at(i)
	return to - p.width, to
}

// keepsName returns true if the fragment's series keep the name of their metric.
func (p *fragment) keepsName() bool {
	return p.function == "" || p.function == "last_over_time" || p.function == "first_over_time"
}

// metric returns the labels of the fragment's series that is made of a stored series.
func (p *fragment) metric(stored labels.Labels) labels.Labels {
	if p.keepsName() {
		return stored
	}
	return stored.DropReserved(schema.IsMetadataLabel)
}

// readFrom returns from when on samples are read.
func (p *fragment) readFrom() int64 {
	if p.counted { // The hints of histograms, for which those before are read, don't count.
		return p.minT
	}
	return earlier(p.minT, hintContext)
}

// open finds the fragment's series of a tenant, in the order in which the ordinary Queryable gives them. warn may be called
// until the last of them was read.
func (p *fragment) open(ctx context.Context, store *storage.Store, of string, warn func(error)) ([]*query.SelectedSeries, error) {
	return store.Select(ctx, query.Query{
		Tenant: of, MinT: p.readFrom(), MaxT: p.edges.last(),
		Matchers: p.matchers, Warn: warn,
	})
}

// unique reports whether no two of the fragment's series can have the same labels. Where they can, the evaluator
// must raise its error.
func (p *fragment) unique(series []foundSeries) bool {
	if p.keepsName() || len(series) < 2 {
		return true
	}
	name, plain := series[0].labels.Get(labels.MetricName), true
	for _, s := range series {
		plain = plain && s.labels.Get(labels.MetricName) == name && !s.labels.Has("__type__") && !s.labels.Has("__unit__")
	}
	if plain {
		return true
	}
	seen := make(map[uint64]struct{}, len(series))
	for _, s := range series {
		hash := p.metric(s.labels).Hash()
		if _, ok := seen[hash]; ok {
			return false
		}
		seen[hash] = struct{}{}
	}
	return true
}

// fragmentReader computes a fragment's values, one series after the other. Each goroutine has its own; there is one
// implementation a way in which samples are kept.
type fragmentReader interface {
	// read computes the values of a series at every step into out, which is empty.
	read(s *query.SelectedSeries, out *values) error
	// notes returns the annotations that came up, and samples how many samples were decoded.
	notes() annotations.Annotations
	samples() int64
	// loaded returns how many samples and buckets the statistics of the query count.
	loaded() int64
}

// FragmentStats describes how a fragment of a query was computed.
type FragmentStats struct {
	// Expr is the text of the fragment's expression.
	Expr string `json:"expr"`
	// Segments describe from what its steps were answered, in order. It is empty if the evaluator read raw samples.
	Segments []SegmentStats `json:"segments"`
	// Series is the number of series, and Samples that of the samples and buckets that were decoded.
	Series  int   `json:"series"`
	Samples int64 `json:"samples"`
	// Duration is the time that it took.
	Duration time.Duration `json:"-"`
	// Milliseconds are Duration's.
	Milliseconds float64 `json:"milliseconds"`
	// Refused is the reason why the fragment was left to Prometheus' evaluator; it is empty if the planner computed it.
	Refused string `json:"refused,omitempty"`
	// selector is what the evaluator selects, for which the fragment was left to it.
	selector string
	// named is the name that may be a rollup's, for which the fragment was refused.
	named string
}

// FromRaw returns true if the fragment was left to the evaluator, which read raw samples.
func (p *FragmentStats) FromRaw() bool { return p.Refused != "" && len(p.Segments) == 0 }
