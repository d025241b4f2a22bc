package adapter

import "sync/atomic"

// Budget bounds the bytes that all requests of one way in hold together.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used returns how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Share returns what one request takes of the budget. The caller calls Give when the request is done.
func (b *Budget) Share() Share { return Share{budget: b} }

// Share is what one request has taken of a Budget. It is for one goroutine.
type Share struct {
	budget *Budget
	taken  int64
}

// Take claims n bytes more, or nothing and ErrBusy when they aren't left.
func (s *Share) Take(n int64) error {
	if s.budget.used.Add(n) > s.budget.limit {
		s.budget.used.Add(-n)
		return ErrBusy
	}
	s.taken += n
	return nil
}

// Taken returns how many bytes are claimed.
func (s *Share) Taken() int64 { return s.taken }

// Give returns all that was taken. It may be called more than once.
func (s *Share) Give() {
	s.budget.used.Add(-s.taken)
	s.taken = 0
}
