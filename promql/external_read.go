package promql

import (
	"context"
	"sync"
	"time"
)

// externalRead is a read that isn't a query of the evaluator's, see Engine.Enter.
type externalRead struct {
	gate   *gate
	place  int
	shares []share

	mu      sync.Mutex
	bytes   int64 // of its answer
	small   int64 // of these, as small answers
	left    bool  // the place
	writing int64 // bytes of an answer that is made while it is read
	reader  *answerReader
}

type externalReadKey struct{}

// Answered notes that the read of ctx, see Engine.Enter, holds an answer of so many bytes more until it leaves, and has nothing to
// compute any more: its place is another's. It returns an error if the answer was expected to be small, isn't, and there is no room.
func Answered(ctx context.Context, bytes int64) error {
	t, ok := ctx.Value(externalReadKey{}).(*externalRead)
	if !ok {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.leave()
	if isSmall(ctx) && !t.gate.isStillSmall(ctx, bytes) {
		return unavailable(errUnread)
	}
	t.hold(ctx, bytes)
	return nil
}

// hold needs the lock.
func (t *externalRead) hold(ctx context.Context, bytes int64) {
	if t.reader == nil {
		t.reader = t.gate.readers.add(ctx)
	}
	t.bytes += bytes
	t.small += small(bytes)
	t.gate.queries.hold(t.shares, bytes, small(bytes))
}

// writePatience is how long a client may take to read a part of a streamed answer while its read keeps its place.
const writePatience = 500 * time.Millisecond

// Streamed calls write, which sends bytes of an answer that is made while it is read. If the client takes long, the read of ctx gives its
// place to another one, and waits for a place again before it goes on.
func Streamed(ctx context.Context, bytes int64, write func() (int, error)) (int, error) {
	t, ok := ctx.Value(externalReadKey{}).(*externalRead)
	if !ok {
		return write()
	}
	t.mu.Lock()
	t.writing = bytes
	t.mu.Unlock()
	defer time.AfterFunc(writePatience, func() { t.pause(ctx) }).Stop()
	n, err := write()
	if resumed := t.resume(ctx); err == nil {
		err = resumed
	}
	return n, err
}

func (t *externalRead) pause(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writing == 0 || t.left {
		return
	}
	t.hold(ctx, t.writing)
	t.leave()
}

// resume waits for a place if the read has none.
func (t *externalRead) resume(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing = 0
	if !t.left {
		return nil
	}
	t.release()
	place, err := t.gate.Insert(ctx, "")
	if err == nil {
		t.place, t.left = place, false
	}
	return err
}

// release needs the lock.
func (t *externalRead) release() {
	t.gate.readers.remove(t.reader)
	t.reader = nil
	if t.bytes > 0 {
		t.gate.queries.hold(t.shares, -t.bytes, -t.small)
		t.bytes, t.small = 0, 0
	}
}

// leave needs the lock.
func (t *externalRead) leave() {
	if !t.left {
		t.left = true
		t.gate.Delete(t.place)
	}
}

func (t *externalRead) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
	t.release()
}
