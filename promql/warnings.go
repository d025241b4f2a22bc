package promql

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/promql/resolution"
)

// maxWarnings is the maximum number of warnings per query: a store with much corruption would cause one per row.
const maxWarnings = 50

var errMoreWarnings = errors.New("more warnings are in the log")

// warnings collects warnings about data that a read had to skip. It is safe for concurrent use.
type warnings struct {
	// isQuery is true if missing raw samples are reported only once, at the end of the query.
	isQuery bool

	mu    sync.Mutex
	all   annotations.Annotations
	short resolution.Shortfall
}

func (w *warnings) add(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if missing := (*resolution.MissingError)(nil); errors.As(err, &missing) {
		w.short.Merge(missing.Shortfall)
		return
	}
	if len(w.all) >= maxWarnings {
		err = errMoreWarnings
	}
	w.all.Add(err)
}

// annotations returns the annotations collected so far.
func (w *warnings) annotations() annotations.Annotations {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out annotations.Annotations
	if info := w.short.Info(); info != nil && !w.isQuery {
		out.Add(info)
	}
	return out.Merge(w.all)
}

// shortfall returns the shortfall of raw samples added so far.
func (w *warnings) shortfall() resolution.Shortfall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.short
}

type warningsKey struct{}

// warningsOf returns the collector of ctx, or a new one.
func warningsOf(ctx context.Context) *warnings {
	if w, ok := ctx.Value(warningsKey{}).(*warnings); ok {
		return w
	}
	return &warnings{}
}

func (w *warnings) into(ctx context.Context) context.Context {
	return context.WithValue(ctx, warningsKey{}, w)
}
