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
// reads wait. Small reads wait only while the unread answers of small reads alone take Options.UnreadBytes or more.

// These sizes are counted for the parts of an answer, in bytes. The text of an answer isn't counted, because it is
// encoded in pieces.
const (
	pointBytes  = 16
	seriesBytes = 96
	bucketBytes = 8 // a span or a bucket
)

// resultBytes is the approximate memory of a result until it is read, in bytes.
func resultBytes(v parser.Value) (n int64) {
	switch v := v.(type) {
	case promengine.Matrix:
		for i := range v {
			n += seriesBytes + labelTextBytes(v[i].Metric) + int64(len(v[i].Floats))*pointBytes
			for _, p := range v[i].Histograms {
				n += pointBytes + histogramBytes(p.H)
			}
		}
	case promengine.Vector:
		for i := range v {
			n += seriesBytes + labelTextBytes(v[i].Metric) + pointBytes
			if v[i].H != nil {
				n += histogramBytes(v[i].H)
			}
		}
	case promengine.String:
		n = 2 * int64(len(v.V))
	}
	return n
}

func histogramBytes(h *histogram.FloatHistogram) int64 {
	return seriesBytes + bucketBytes*int64(len(h.PositiveSpans)+len(h.NegativeSpans)+len(h.PositiveBuckets)+
		len(h.NegativeBuckets)+len(h.CustomValues))
}

// labelTextBytes returns the size of the text of the labels in the answer, in bytes. The labels themselves aren't
// counted, because the store also holds them.
func labelTextBytes(ls labels.Labels) (n int64) {
	ls.Range(func(l labels.Label) { n += int64(len(l.Name)+len(l.Value)) + 6 })
	return n
}

// unreadAnswer counts the bytes of a query's answers.
type unreadAnswer struct {
	once   sync.Once
	gate   *gate
	shares []share
	bytes  int64
	// isLarge is true if the bytes count among the answers of large reads.
	isLarge bool
	reader  *answerReader
}

// newUnread counts the bytes of an answer until release is called.
func (g *gate) newUnread(ctx context.Context, bytes int64) *unreadAnswer {
	r := readOf(ctx)
	u := &unreadAnswer{gate: g, shares: g.sharesOf(ctx), reader: g.readers.add(ctx),
		isLarge: r != nil && r.large.Load()}
	u.add(bytes)
	return u
}

// add counts more bytes until release is called.
func (u *unreadAnswer) add(bytes int64) {
	was, wasLarge := u.bytes, u.isLarge
	u.bytes += bytes
	u.isLarge = wasLarge || u.gate.largeBytes > 0 && u.bytes > u.gate.largeBytes
	u.gate.addUnread(u.shares, u.bytes, u.isLarge)
	u.gate.addUnread(u.shares, -was, wasLarge)
}

// addUnread adds bytes to the bytes of unread answers. Negative bytes have been read.
func (g *gate) addUnread(shares []share, bytes int64, isLarge bool) {
	g.unread.Add(bytes)
	if isLarge {
		g.large.addHeld(shares, bytes)
		return
	}
	g.queries.addHeld(shares, bytes)
	if bytes < 0 {
		g.large.startWaiters()
	}
}

// release releases the bytes. It may be called more than once, and on nil.
func (u *unreadAnswer) release() {
	if u != nil {
		u.once.Do(func() {
			u.gate.readers.remove(u.reader)
			u.gate.addUnread(u.shares, -u.bytes, u.isLarge)
		})
	}
}
