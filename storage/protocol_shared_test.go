package storage

import (
	"bytes"
	"context"
	"testing"
	"time"
)

// TestSharedProtocol runs seeded histories of multiple processes on one engine. A query in any process must return all
// samples that any process had acknowledged before. A failing history is shortened and printed.
func TestSharedProtocol(t *testing.T) {
	t.Parallel()
	for seed := range protocolSeeds(t, 90) {
		h := makeSharedHistory(seed)
		if problem := runHistory(h); problem != "" {
			h = shrinkHistory(h)
			t.Fatalf("seed %d: %s\n%s\nas a shorter history: %s", seed, problem, h, runHistory(h))
		}
	}
}

// quiet checks that no unsealed state is left after some rounds of all processes without faults.
func (s *sharedRun) quiet() {
	ctx := context.Background()
	for _, r := range s.procs {
		s.faults, s.within, s.with, s.order = nil, nil, nil, 0
		r.silent = false
		if r.store == nil {
			r.start()
		}
		if r.problem != "" {
			return
		}
		r.eng.arm(nil, nil)
	}
	for _, r := range s.procs {
		r.tolerate("applying what was withheld", r.eng.inner.ApplyWithheld(ctx))
	}
	s.everyone("at rest", nil)
	for _, r := range s.procs {
		r.round(ctx)
		s.everyone("after a round", nil)
	}
	s.pass(4*24*time.Hour + time.Hour)
	for range 3 {
		s.pass(gapTTL + time.Second)
		for _, r := range s.procs {
			r.round(ctx)
			r.tolerate("forgetting", s.do(r, "forget"))
		}
	}
	for p := range protocolPartitions { // Nothing else finds rows of a write that failed before its slot was listed.
		_, err := s.procs[0].store.SealUnlisted(ctx, p)
		s.procs[0].tolerate("sweeping", err)
	}
	for _, r := range s.procs {
		r.tolerate("forgetting", s.do(r, "forget"))
		r.emptyHead()
	}
	for _, r := range s.procs { // Each process hides samples by its own clock.
		s.skew(r, 0)
	}
	answer := s.everyone("when all is sealed", nil)
	for _, r := range s.procs {
		r.restart(true, 0)
		if r.problem != "" {
			return
		}
	}
	s.everyone("after a restart", answer)
	for _, r := range s.procs {
		r.round(ctx)
		r.rest(ctx)
	}
}

// everyone reads everything in all processes. It compares the answers with the model, and with want if want isn't nil.
// It returns the last answer.
func (s *sharedRun) everyone(when string, want []byte) (got []byte) {
	for _, r := range s.procs {
		if s.problem() != "" {
			return got
		}
		for _, tenant := range []string{"ann", "bob"} {
			if err := r.query([]string{tenant}); err != nil {
				r.fail("%v", err)
			}
		}
		got = encodeAnswer(r.answer(context.Background()))
		if want != nil && !bytes.Equal(got, want) {
			r.fail("another answer %s", when)
		}
	}
	return got
}
