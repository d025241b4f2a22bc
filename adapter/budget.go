package adapter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// senderPatience is how long a client may delay its request while other requests need the bytes that the request
	// holds.
	senderPatience = time.Second
	// roomPatience is how long Claim waits for aborted requests to release their bytes. It tries again every
	// releaseInterval.
	roomPatience    = time.Second
	releaseInterval = 10 * time.Millisecond
)

// Sender is the client of a request whose body is being read.
type Sender interface {
	// Overdue returns by how much the client exceeds the time allowed for its bytes. It returns false if the process
	// isn't waiting for the client.
	Overdue(now time.Time) (time.Duration, bool)
	// GiveUp aborts the request, which then releases its bytes soon.
	GiveUp()
}

type senderKey struct{}

// WithSender returns a context for the requests of a client. A request is aborted if the client sends its body too
// slowly while other requests need bytes that the request holds.
func WithSender(ctx context.Context, s Sender) context.Context {
	return context.WithValue(ctx, senderKey{}, s)
}

// Budget bounds the total bytes of concurrent requests. The requests are of one endpoint, or of all endpoints whose
// budgets are parts of this budget. When a budget is exhausted, the requests with the slowest clients are aborted, so
// that clients that announce a body and don't send it can't block others. It is safe for concurrent use.
type Budget struct {
	limit int64
	whole *Budget // the budget that this one is part of; nil: none
	used  atomic.Int64

	mu      sync.Mutex
	holders map[*holder]struct{}
}

// holder is a request with a sender that holds bytes.
type holder struct {
	sender Sender
	bytes  atomic.Int64
	// isGivenUp is set once the request has been aborted; it then releases its bytes soon.
	isGivenUp atomic.Bool
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit, holders: map[*holder]struct{}{}} }

// SubBudget returns a budget of limit bytes that also count against b. A nil Budget is unlimited.
func (b *Budget) SubBudget(limit int64) *Budget {
	part := NewBudget(limit)
	part.whole = b
	return part
}

// Used returns the number of claimed bytes.
func (b *Budget) Used() int64 { return b.used.Load() }

// NewShare returns the share of one request, whose context is ctx. The caller must call Release when the request is
// done.
func (b *Budget) NewShare(ctx context.Context) Share {
	sender, _ := ctx.Value(senderKey{}).(Sender)
	return Share{budget: b, sender: sender}
}

// Share holds the bytes that one request has claimed from a Budget. It must be used by one goroutine.
type Share struct {
	budget *Budget
	taken  int64
	sender Sender
	holder *holder // nil: no bytes are held, or there is no sender
}

// Claim claims n more bytes. If they aren't available, it aborts requests with slow clients and waits up to
// roomPatience for their bytes. If that isn't enough, it claims nothing and returns ErrBusy.
func (s *Share) Claim(n int64) error {
	full := s.tryClaim(n)
	for until := time.Now().Add(roomPatience); full != nil && full.makeRoom(n) && time.Now().Before(until); {
		time.Sleep(releaseInterval)
		full = s.tryClaim(n)
	}
	if full != nil {
		return ErrBusy
	}
	return nil
}

// tryClaim claims n bytes. If a budget has fewer bytes left, it claims nothing and returns that budget.
func (s *Share) tryClaim(n int64) (full *Budget) {
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

// release returns n bytes to b and to each budget that contains it, up to and including last.
func (b *Budget) release(n int64, last *Budget) {
	for ; b != nil; b = b.whole {
		b.used.Add(-n)
		if b == last {
			return
		}
	}
}

// Claimed returns the number of bytes that this share holds.
func (s *Share) Claimed() int64 { return s.taken }

// Release returns all claimed bytes to the budget. It may be called more than once.
func (s *Share) Release() {
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

// makeRoom aborts the requests with the slowest clients until enough bytes for a claim of n will be released. It
// returns false if aborting all slow clients isn't enough.
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
