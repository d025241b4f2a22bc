package promql

import (
	"context"
	"sync"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// An answer takes memory until its client has read it. Above Options.UnreadBytes large reads wait, and above unreadOfAll times that small
// ones too, as they do when all places are taken.

// Sizes that are counted for an answer, bytes. Its text is encoded in pieces.
const (
	unreadPoint  = 16
	unreadSeries = 96
	unreadBucket = 8 // a span or a bucket
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
	gate   *gate
	shares []share
	bytes  int64
	reader *answerReader
}

// hold counts a result until give is called.
func (g *gate) hold(ctx context.Context, bytes int64) *unread {
	u := &unread{gate: g, shares: g.sharesOf(ctx), reader: g.readers.add(ctx)}
	u.add(bytes)
	return u
}

// add counts more bytes until give is called.
func (u *unread) add(bytes int64) {
	u.bytes += bytes
	u.gate.holdAnswer(u.shares, bytes)
}

// holdAnswer counts bytes of answers; negative ones have been read. Large reads wait for less of them than others.
func (g *gate) holdAnswer(shares []share, bytes int64) {
	g.queries.hold(shares, bytes)
	g.large.hold(shares, bytes)
}

// give may be called more than once, and of nil.
func (u *unread) give() {
	if u != nil {
		u.once.Do(func() {
			u.gate.readers.remove(u.reader)
			u.gate.holdAnswer(u.shares, -u.bytes)
		})
	}
}
