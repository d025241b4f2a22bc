package adapter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// senderPatience is how long a client may keep its request waiting while others need the bytes that it holds.
	senderPatience = time.Second
	// roomPatience is how long a request waits for the bytes of those that were given up, releaseInterval how often it looks.
	roomPatience    = time.Second
	releaseInterval = 10 * time.Millisecond
)

// Sender is the client of a request whose body is read.
type Sender interface {
	// Overdue returns how long the client has kept the process waiting beyond what its bytes allow, and false if the process doesn't wait
	// for it now.
	Overdue(now time.Time) (time.Duration, bool)
	// GiveUp makes the request fail: it releases its bytes soon.
	GiveUp()
}

type senderKey struct{}

// WithSender returns a context for the requests of a client. If others need the bytes that a request of it holds, and it sends too slowly,
// the request is given up.
func WithSender(ctx context.Context, s Sender) context.Context {
	return context.WithValue(ctx, senderKey{}, s)
}

// Budget bounds the bytes that requests hold together: those of one endpoint, or of all endpoints whose budgets are parts of it. If all are
// taken, requests whose clients send slowest are given up, so that clients who begin bodies and don't send them keep nobody out.
type Budget struct {
	limit int64
	whole *Budget // the one that this is a part of; nil: none
	used  atomic.Int64

	mu      sync.Mutex
	holders map[*holder]struct{}
}

// holder is a request that has a sender and holds bytes.
type holder struct {
	sender Sender
	bytes  atomic.Int64
	// isGivenUp: its bytes are released soon.
	isGivenUp atomic.Bool
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit, holders: map[*holder]struct{}{}} }

// Part returns a budget of limit bytes, which are bytes of b, too. A nil Budget bounds nothing.
func (b *Budget) Part(limit int64) *Budget {
	part := NewBudget(limit)
	part.whole = b
	return part
}

// Used returns how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Share returns what the request of a context takes of the budget. The caller calls Give when the request is done.
func (b *Budget) Share(ctx context.Context) Share {
	sender, _ := ctx.Value(senderKey{}).(Sender)
	return Share{budget: b, sender: sender}
}

// Share is what one request has taken of a Budget. It is for one goroutine.
type Share struct {
	budget *Budget
	taken  int64
	sender Sender
	holder *holder // nil: it holds nothing, or has no sender
}

// Take claims n bytes more, or nothing and ErrBusy when they aren't left.
func (s *Share) Take(n int64) error {
	full := s.claim(n)
	for until := time.Now().Add(roomPatience); full != nil && full.makeRoom(n) && time.Now().Before(until); {
		time.Sleep(releaseInterval)
		full = s.claim(n)
	}
	if full != nil {
		return ErrBusy
	}
	return nil
}

// claim takes n bytes, or nothing and returns the budget that has fewer left.
func (s *Share) claim(n int64) (full *Budget) {
	for b := s.budget; b != nil; b = b.whole {
		if b.used.Add(n) > b.limit {
			s.budget.release(n, b)
			return b
		}
	}
	if s.taken += n; s.sender == nil {
		return nil
	}
	if s.holder == nil {
		s.holder = &holder{sender: s.sender}
		for b := s.budget; b != nil; b = b.whole {
			b.mu.Lock()
			b.holders[s.holder] = struct{}{}
			b.mu.Unlock()
		}
	}
	s.holder.bytes.Store(s.taken)
	return nil
}

// release gives n bytes back to b and all that it is a part of, up to last.
func (b *Budget) release(n int64, last *Budget) {
	for ; b != nil; b = b.whole {
		b.used.Add(-n)
		if b == last {
			return
		}
	}
}

// Taken returns how many bytes are claimed.
func (s *Share) Taken() int64 { return s.taken }

// Give returns all that was taken. It may be called more than once.
func (s *Share) Give() {
	s.budget.release(s.taken, nil)
	s.taken = 0
	if s.holder == nil {
		return
	}
	for b := s.budget; b != nil; b = b.whole {
		b.mu.Lock()
		delete(b.holders, s.holder)
		b.mu.Unlock()
	}
	s.holder = nil
}

// makeRoom gives up the requests whose clients send slowest until so many bytes will be left. It returns false if that can't be.
func (b *Budget) makeRoom(n int64) bool {
	type late struct {
		*holder
		overdue time.Duration
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := b.used.Load() + n - b.limit
	var slow []late
	now := time.Now()
	for h := range b.holders {
		switch overdue, waits := h.sender.Overdue(now); {
		case h.isGivenUp.Load():
			missing -= h.bytes.Load()
		case waits && overdue >= senderPatience:
			slow = append(slow, late{h, overdue})
		}
	}
	slices.SortFunc(slow, func(a, b late) int { return int(b.overdue - a.overdue) })
	for _, s := range slow {
		if missing <= 0 {
			break
		}
		s.isGivenUp.Store(true)
		s.sender.GiveUp()
		missing -= s.bytes.Load()
	}
	return missing <= 0
}
