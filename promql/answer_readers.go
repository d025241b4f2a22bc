package promql

import (
	"context"
	"sync"
	"time"
)

// AnswerClient is the client that reads an answer.
type AnswerClient interface {
	// Overdue returns the time for which the answer has waited for the client, minus the time that the client is
	// allowed for the bytes it has read. It returns false if the answer isn't waiting for the client.
	Overdue(now time.Time) (time.Duration, bool)
	// GiveUp aborts the answer, so that its memory is released soon.
	GiveUp()
}

type clientKey struct{}

// WithClient returns a context for the requests of a client. If other reads need the memory of an answer that the
// client doesn't read, the answer is aborted.
func WithClient(ctx context.Context, c AnswerClient) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// unreadPatience is the maximum time for which a client may read nothing while other reads wait for the memory of its
// answer.
const unreadPatience = 2 * time.Second

// answerReader is a client with an answer to read.
type answerReader struct{ client AnswerClient }

// answerReaders are the clients with answers to read.
type answerReaders struct {
	mu  sync.Mutex
	all map[*answerReader]struct{}
}

// add adds the client of ctx until remove is called. It returns nil if ctx has no client.
func (r *answerReaders) add(ctx context.Context) *answerReader {
	client, ok := ctx.Value(clientKey{}).(AnswerClient)
	if !ok {
		return nil
	}
	added := &answerReader{client}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*answerReader]struct{}{}
	}
	r.all[added] = struct{}{}
	return added
}

func (r *answerReaders) remove(one *answerReader) {
	if one == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, one)
}

// dropSlowest aborts the answer whose client has read nothing for the longest time, if that is longer than
// unreadPatience.
func (r *answerReaders) dropSlowest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var slowest *answerReader
	longest, now := unreadPatience, time.Now()
	for one := range r.all {
		if waited, waits := one.client.Overdue(now); waits && waited >= longest {
			slowest, longest = one, waited
		}
	}
	if slowest != nil {
		delete(r.all, slowest)
		slowest.client.GiveUp()
	}
}

// dropUnread aborts the answer of the slowest client if unread answers have reached the bound at which large reads
// wait.
func (g *gate) dropUnread() {
	if g.isFull() {
		g.readers.dropSlowest()
	}
}

// isFull reports whether unread answers have reached the bound at which large reads wait.
func (g *gate) isFull() bool { return g.unreadBytes > 0 && g.unread.Load() >= g.unreadBytes }
