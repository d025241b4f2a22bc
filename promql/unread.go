package promql

import (
	"context"
	"sync"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// An answer takes memory until its client has read it. While all unread answers take Options.UnreadBytes or more, large
// reads wait. Small reads wait only while the answers of small reads alone take that much.

// These sizes are counted for the parts of an answer, in bytes. The text of an answer isn't counted, because it is
// encoded in pieces.
const (
	unreadPoint  = 16
	unreadSeries = 96
	unreadBucket = 8 // a span or a bucket
)

// unreadBytes is the approximate memory of a result until it is read, in bytes.
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
	return unreadSeries + unreadBucket*int64(len(h.PositiveSpans)+len(h.NegativeSpans)+len(h.PositiveBuckets)+
		len(h.NegativeBuckets)+len(h.CustomValues))
}

// unreadLabels returns the size of the text of the labels in the answer, in bytes. The labels themselves aren't
// counted, because the store also holds them.
func unreadLabels(ls labels.Labels) (n int64) {
	ls.Range(func(l labels.Label) { n += int64(len(l.Name)+len(l.Value)) + 6 })
	return n
}

// unread counts the bytes of a query's answers.
type unread struct {
	once   sync.Once
	gate   *gate
	shares []share
	bytes  int64
	// isLarge is true if the bytes count among the answers of large reads.
	isLarge bool
	reader  *answerReader
}

// hold counts the bytes of an answer until give is called.
func (g *gate) hold(ctx context.Context, bytes int64) *unread {
	r := readOf(ctx)
	u := &unread{gate: g, shares: g.sharesOf(ctx), reader: g.readers.add(ctx), isLarge: r != nil && r.large.Load()}
	u.add(bytes)
	return u
}

// add counts more bytes until give is called.
func (u *unread) add(bytes int64) {
	was, wasLarge := u.bytes, u.isLarge
	u.bytes += bytes
	u.isLarge = wasLarge || u.gate.largeBytes > 0 && u.bytes > u.gate.largeBytes
	u.gate.holdAnswer(u.shares, u.bytes, u.isLarge)
	u.gate.holdAnswer(u.shares, -was, wasLarge)
}

// holdAnswer adds bytes to the bytes of unread answers. Negative bytes have been read.
func (g *gate) holdAnswer(shares []share, bytes int64, isLarge bool) {
	g.unread.Add(bytes)
	if isLarge {
		g.large.hold(shares, bytes)
		return
	}
	g.queries.hold(shares, bytes)
	if bytes < 0 {
		g.large.wake()
	}
}

// give releases the bytes. It may be called more than once, and on nil.
func (u *unread) give() {
	if u != nil {
		u.once.Do(func() {
			u.gate.readers.remove(u.reader)
			u.gate.holdAnswer(u.shares, -u.bytes, u.isLarge)
		})
	}
}
