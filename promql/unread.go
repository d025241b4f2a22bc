package promql

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// An answer takes memory until whoever asked has read it: the evaluator's result and its text. Queries beyond
// Options.UnreadBytes of that wait for their turn, as those beyond the places do.

// Sizes that are counted for an answer, bytes: in memory, and as JSON.
const (
	unreadPoint  = 16 + 64 // the text grows by doubling
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
	gate   *gate
	shares []share
	bytes  int64
	roomy  bool // it has room
	reader *answerReader
}

// hold counts a result until give is called.
func (g *gate) hold(ctx context.Context, bytes int64) *unread {
	u := &unread{gate: g, shares: g.sharesOf(ctx), bytes: bytes, reader: g.readers.add(ctx)}
	g.queries.hold(u.shares, u.bytes, small(u.bytes))
	return u
}

// room waits until there is room for the text of an answer: those that ran at once are computed by now, and would be written at once.
func (u *unread) room(ctx context.Context) error {
	if u.bytes <= roomless {
		return nil
	}
	err := u.gate.texts.take(ctx, u.shares[0].name, u.bytes)
	u.roomy = err == nil
	return err
}

// give may be called more than once, and of nil.
func (u *unread) give() {
	if u != nil {
		u.once.Do(func() {
			if u.roomy {
				u.gate.texts.give(u.shares[0].name, u.bytes)
			}
			u.gate.readers.remove(u.reader)
			u.gate.queries.hold(u.shares, -u.bytes, -small(u.bytes))
		})
	}
}

// roomless is how large an answer may be that doesn't wait for room, bytes: there aren't many of them at once.
const roomless = 1 << 20

// small returns the bytes of an answer if it is small, and otherwise 0.
func small(bytes int64) int64 {
	if bytes <= roomless {
		return bytes
	}
	return 0
}

// texts bound what answers take that are being written. One may always be; a tenant that has none there may have a quarter more.
type texts struct {
	bytes int64 // 0: nothing bounds them
	// onWait is called every waitInterval while an answer waits; may be nil.
	onWait func()

	mu      sync.Mutex
	taken   int64
	of      map[string]int64
	changed chan struct{} // is closed when there is more room; nil: nobody waits
}

func (t *texts) take(ctx context.Context, tenant string, bytes int64) error {
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	for {
		more := t.try(tenant, bytes)
		if more == nil {
			return nil
		}
		select {
		case <-more:
		case <-tick.C:
			if t.onWait != nil {
				t.onWait()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try returns nil if there was room, and otherwise a channel that is closed when there may be.
func (t *texts) try(tenant string, bytes int64) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	most := t.bytes
	if t.of[tenant] == 0 {
		most += most / 4
	}
	if t.bytes == 0 || t.taken == 0 || t.taken+bytes <= most {
		if t.of == nil {
			t.of = map[string]int64{}
		}
		t.taken += bytes
		t.of[tenant] += bytes
		return nil
	}
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

func (t *texts) give(tenant string, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken -= bytes
	if t.of[tenant] -= bytes; t.of[tenant] == 0 {
		delete(t.of, tenant)
	}
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}
