package promql

import (
	"context"
	"sync"
	"time"
)

// externalRead is a read outside the evaluator, see Engine.Enter.
type externalRead struct {
	*read

	answerMu sync.Mutex
	answer   *unreadAnswer // nil if the read holds no answer
	writing  int64         // bytes of an answer that is streamed
	paused   bool          // the place was released because the client reads slowly
}

type externalReadKey struct{}

// HoldAnswer records that the read of ctx (see Engine.Enter) holds more bytes of an answer, until the caller of Enter
// calls leave. The read must have finished computing, because its place is given to another read.
func HoldAnswer(ctx context.Context, bytes int64) {
	t, ok := ctx.Value(externalReadKey{}).(*externalRead)
	if !ok {
		return
	}
	t.answerMu.Lock()
	defer t.answerMu.Unlock()
	t.holdAnswer(ctx, bytes)
	t.leave()
}

// holdAnswer adds bytes to the answer that the read holds. The caller must hold answerMu.
func (t *externalRead) holdAnswer(ctx context.Context, bytes int64) {
	if t.answer == nil {
		t.answer = t.gate.newUnread(ctx, bytes)
		return
	}
	t.answer.add(bytes)
}

// releaseAnswer releases the answer that the read holds. The caller must hold answerMu.
func (t *externalRead) releaseAnswer() {
	t.answer.release()
	t.answer = nil
}

// writePatience is the maximum time that a client may take to read a part of a streamed answer. After that time, the
// read gives its place to another read.
const writePatience = 500 * time.Millisecond

// StreamAnswer calls write, which sends bytes of a streamed answer. If the client reads slowly, the read of ctx gives
// its place to another read. In that case, StreamAnswer waits for a place again after write has returned.
func StreamAnswer(ctx context.Context, bytes int64, write func() (int, error)) (int, error) {
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
	t.holdAnswer(ctx, t.writing)
	t.leave()
}

// resume waits for a place if pause has released the read's place.
func (t *externalRead) resume(ctx context.Context) error {
	t.answerMu.Lock()
	defer t.answerMu.Unlock()
	t.writing = 0
	if !t.paused {
		return nil
	}
	t.paused = false
	t.releaseAnswer()
	return t.enterAgain(ctx)
}

func (t *externalRead) end() {
	t.read.end()
	t.answerMu.Lock()
	defer t.answerMu.Unlock()
	t.releaseAnswer()
}
