package promql

import (
	"context"
	"sync"
	"time"
)

// externalRead is a read that isn't a query of the evaluator's, see Engine.Enter.
type externalRead struct {
	*read

	answerMu sync.Mutex
	answer   *unread // nil: it holds none
	writing  int64   // bytes of an answer that is made while it is read
	paused   bool    // the place was released while the client reads slowly
}

type externalReadKey struct{}

// Answered notes that the read of ctx, see Engine.Enter, holds an answer of so many bytes more until it leaves, and has nothing to
// compute any more: its place is another's.
func Answered(ctx context.Context, bytes int64) {
	t, ok := ctx.Value(externalReadKey{}).(*externalRead)
	if !ok {
		return
	}
	t.answerMu.Lock()
	defer t.answerMu.Unlock()
	t.hold(ctx, bytes)
	t.leave()
}

// hold requires the lock.
func (t *externalRead) hold(ctx context.Context, bytes int64) {
	if t.answer == nil {
		t.answer = t.gate.hold(ctx, bytes)
		return
	}
	t.answer.add(bytes)
}

// release requires the lock.
func (t *externalRead) release() {
	t.answer.give()
	t.answer = nil
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
	t.answerMu.Lock()
	t.writing = bytes
	t.answerMu.Unlock()
	defer time.AfterFunc(writePatience, func() { t.pause(ctx) }).Stop()
	n, err := write()
	if resumed := t.resume(ctx); err == nil {
		err = resumed
	}
	return n, err
}

func (t *externalRead) pause(ctx context.Context) {
	t.answerMu.Lock()
	defer t.answerMu.Unlock()
	if t.writing == 0 || t.paused {
		return
	}
	t.paused = true
	t.hold(ctx, t.writing)
	t.leave()
}

// resume waits for a place if the read has none.
func (t *externalRead) resume(ctx context.Context) error {
	t.answerMu.Lock()
	defer t.answerMu.Unlock()
	t.writing = 0
	if !t.paused {
		return nil
	}
	t.paused = false
	t.release()
	return t.enterAgain(ctx)
}

func (t *externalRead) end() {
	t.read.end()
	t.answerMu.Lock()
	defer t.answerMu.Unlock()
	t.release()
}
