package paged

import (
	"context"
	"fmt"
	"sync"
)

// longWindows are the windows of rollups that may have long chunks. Whoever reads another window looks for none: a scan
// for some series begins at the first of their chunks that is wanted, behind the long ones. So before the first long
// chunk is written to a window, scans that began without looking for any end:
//
//	scan:    is the window listed? ── no: counted ─► reads ─► counted no more
//	compact: the window is listed ─► waits until none is counted ─► writes long chunks
type longWindows struct {
	mu     sync.Mutex
	listed map[int64]bool
	plain  map[int64]int // scans under way, of windows that weren't listed
	// ended is closed, and made anew, when such a scan of a listed window ends.
	ended chan struct{}
}

func newLongWindows() *longWindows {
	return &longWindows{listed: map[int64]bool{}, plain: map[int64]int{}, ended: make(chan struct{})}
}

// begin notes that a scan of a window begins, and reports whether it must look for long chunks; if not, end must be
// called.
func (w *longWindows) begin(window int64) (long bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listed[window] {
		return true
	}
	w.plain[window]++
	return false
}

func (w *longWindows) end(window int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.plain[window]--; w.plain[window] > 0 {
		return
	}
	delete(w.plain, window)
	if w.listed[window] {
		close(w.ended)
		w.ended = make(chan struct{})
	}
}

func (w *longWindows) has(window int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed[window]
}

// list lists windows that have long chunks already.
func (w *longWindows) list(windows []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, window := range windows {
		w.listed[window] = true
	}
}

// await lists a window, and waits until all scans of it look for long chunks.
func (w *longWindows) await(ctx context.Context, window int64) error {
	for {
		w.mu.Lock()
		w.listed[window] = true
		n, ended := w.plain[window], w.ended
		w.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("paged: waiting for %d scans of window %d that started earlier: %w", n, window, ctx.Err())
		}
	}
}

// ListLong lists windows of r5m and r1h that may have long chunks. It is called before any scan.
func (r *Rows) ListLong(windows []int64) { r.long.list(windows) }

// HasLong reports whether a window may have long chunks.
func (r *Rows) HasLong(window int64) bool { return r.long.has(window) }

// BeginLong makes sure that all scans of a window look for long chunks, before the first ones are written there. It
// waits for scans that began before.
func (r *Rows) BeginLong(ctx context.Context, window int64) error { return r.long.await(ctx, window) }
