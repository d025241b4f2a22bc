package promql

import (
	"context"
	"sync"
	"time"
)

// AnswerClient is who asked for an answer.
type AnswerClient interface {
	// Overdue returns how long the client has kept its answer waiting beyond what it reads, and false if the answer doesn't wait for it.
	Overdue(now time.Time) (time.Duration, bool)
	// GiveUp ends the answer: what it holds is released soon.
	GiveUp()
}

type clientKey struct{}

// WithClient returns a context for the requests of a client. If others need what an answer of it holds, and it doesn't read, the answer is
// given up.
func WithClient(ctx context.Context, c AnswerClient) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// unreadPatience is how long a client may read nothing while others wait for what its answer holds.
const unreadPatience = 2 * time.Second

// answerReader is a client that has an answer to read.
type answerReader struct{ client AnswerClient }

// answerReaders are the clients that have answers to read.
type answerReaders struct {
	mu  sync.Mutex
	all map[*answerReader]struct{}
}

// add adds the client of ctx until remove is called. It returns nil if ctx has none.
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

// dropSlowest gives up the answer whose client has read nothing for longest, if it is longer than unreadPatience.
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

// dropUnread makes room if queries wait because of what answers hold that nobody reads.
func (g *gate) dropUnread() {
	if g.isFull() {
		g.readers.dropSlowest()
	}
}

// isFull returns true if answers hold as much as they may before large reads wait.
func (g *gate) isFull() bool { return g.unreadBytes > 0 && g.unread.Load() >= g.unreadBytes }
