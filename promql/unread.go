package promql

import (
	"context"
	"sync"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// An answer takes memory until whoever asked has read it: the evaluator's result and its text. Queries beyond
// Options.UnreadBytes of that wait for their turn, as those beyond the places do.

// What is counted of an answer, bytes: in memory, and as JSON.
const (
	unreadPoint  = 16 + 32
	unreadSeries = 128
	unreadBucket = 8 + 48 // a span or a bucket
)

// unreadBytes is about what a result takes until it is read.
func unreadBytes(v parser.Value) (n int64) {
	switch v := v.(type) {
	case promengine.Matrix:
		for i := range v {
			n += unreadSeries + unreadLabels(v[i].Metric) + int64(len(v[i].Floats))*unreadPoint
			for _, p := range v[i].Histograms {
				n += unreadPoint + unreadHistogram(p.H)
			}
		}
	case promengine.Vector:
		for i := range v {
			n += unreadSeries + unreadLabels(v[i].Metric) + unreadPoint
			if v[i].H != nil {
				n += unreadHistogram(v[i].H)
			}
		}
	case promengine.String:
		n = 2 * int64(len(v.V))
	}
	return n
}

func unreadHistogram(h *histogram.FloatHistogram) int64 {
	return unreadSeries + unreadBucket*int64(len(h.PositiveSpans)+len(h.NegativeSpans)+len(h.PositiveBuckets)+len(h.NegativeBuckets)+len(h.CustomValues))
}

// unreadLabels counts the text of labels alone: in memory they are the store's, too.
func unreadLabels(ls labels.Labels) (n int64) {
	ls.Range(func(l labels.Label) { n += int64(len(l.Name)+len(l.Value)) + 6 })
	return n
}

// unread is what a query holds of the bytes of answers.
type unread struct {
	once   sync.Once
	turns  *turns
	shares []share
	bytes  int64
}

// hold counts a result until give is called.
func (g *gate) hold(ctx context.Context, v parser.Value) *unread {
	u := &unread{turns: g.queries, shares: g.sharesOf(ctx), bytes: unreadBytes(v)}
	u.turns.hold(u.shares, u.bytes)
	return u
}

// give may be called more than once, and of nil.
func (u *unread) give() {
	if u != nil {
		u.once.Do(func() { u.turns.hold(u.shares, -u.bytes) })
	}
}
