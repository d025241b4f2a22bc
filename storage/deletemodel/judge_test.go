package deletemodel

import "slices"

// judge records all samples that were sent and all deletes that were requested. It decides which answers are correct.
type judge struct {
	sent    []*sentSamples
	deletes []*requestedDelete
}

// requestState is the outcome of a request.
type requestState int

const (
	running requestState = iota
	acknowledged
	failed
)

// sentSamples are the samples of one write or import.
type sentSamples struct {
	samples content
	by      *actor
	state   requestState
	// begun and acked are the numbers of the events at which the request started and was acknowledged.
	begun, acked int
	// staged contains the keys of the samples' staged rows. sealed is true if one of these rows was sealed, or if the
	// samples were imported.
	staged []stageKey
	sealed bool
	// optional contains samples that may be missing: they could only be added to rollups, and a stored bucket rejected
	// them.
	optional content
	// raced is true if rollups may have been computed before all chunks of an import were stored.
	raced bool
}

func (s *sentSamples) acknowledge(event int) { s.state, s.acked = acknowledged, event }

// requestedDelete is a delete that was requested, with the outcome of the request.
type requestedDelete struct {
	deletion
	by           *actor
	state        requestState
	begun, ended int
}

func newJudge() *judge { return &judge{} }

func (j *judge) copyOf() *judge {
	c := newJudge()
	for _, s := range j.sent {
		n := *s
		n.by, n.staged = nil, slices.Clone(s.staged)
		if n.state == running {
			n.state = failed
		}
		c.sent = append(c.sent, &n)
	}
	for _, d := range j.deletes {
		n := *d
		n.by = nil
		if n.state == running {
			n.state, n.ended = failed, 1<<30
		}
		c.deletes = append(c.deletes, &n)
	}
	return c
}

// send records a request to store samples.
func (j *judge) send(a *actor, samples content, event int) *sentSamples {
	s := &sentSamples{samples: samples, by: a, begun: event}
	s.raced = slices.ContainsFunc(a.w.actors, func(o *actor) bool { return o.rolling })
	j.sent = append(j.sent, s)
	return s
}

// request records a delete.
func (j *judge) request(a *actor, d deletion, event int) *requestedDelete {
	r := &requestedDelete{deletion: d, by: a, begun: event}
	j.deletes = append(j.deletes, r)
	return r
}

func (r *requestedDelete) end(ok bool, event int) {
	r.ended, r.state = event, failed
	if ok {
		r.state = acknowledged
	}
}

// ended records that an operation ended without a response, so that the outcome of its requests is unknown.
func (j *judge) ended(a *actor) {
	for _, s := range j.sent {
		if s.by == a && s.state == running {
			s.state = failed
		}
	}
	for _, d := range j.deletes {
		if d.by == a && d.state == running {
			d.end(false, a.w.events)
		}
	}
}

// sealedRows records that the samples of staged rows were sealed.
func (j *judge) sealedRows(rows []stageKey) {
	for _, s := range j.sent {
		if slices.ContainsFunc(s.staged, func(k stageKey) bool { return slices.Contains(rows, k) }) {
			s.sealed = true
		}
	}
}

// leaveOut records samples that a stored bucket rejected because it overlaps them.
func (j *judge) leaveOut(series int, left samples) {
	for _, s := range j.sent {
		if !s.sealed {
			s.optional[series] |= left
		}
	}
}

// beginRolling records that an operation starts to compute missing rollups. The rollups may miss samples of running
// imports.
func (j *judge) beginRolling() {
	for _, s := range j.sent {
		s.raced = s.raced || s.by != nil && !s.by.done
	}
}

// appliedLate records that a write of an operation was applied after the operation had failed.
func (j *judge) appliedLate(by *actor) {
	for _, s := range j.sent {
		s.raced = s.raced || s.by == by
	}
}

// missable returns the samples that may be missing in rollups: samples of failed imports, if rollups were computed
// concurrently.
func (j *judge) missable() (all content) {
	for _, s := range j.sent {
		if s.state != acknowledged && len(s.staged) == 0 && s.raced {
			all.add(s.samples)
		}
	}
	return all
}

// expectation contains the samples of one request that an answer must contain (live), and those that it must not
// contain (dead).
type expectation struct{ live, dead content }

// expect returns the expectation of each request.
func (j *judge) expect() []expectation {
	list := make([]expectation, len(j.sent))
	for i, s := range j.sent {
		x := &list[i]
		if s.state != acknowledged {
			continue
		}
		x.live = s.samples
		for k := range x.live {
			x.live[k] &^= s.optional[k]
		}
		for _, d := range j.deletes {
			before, uncertain := false, false
			switch d.state {
			case running:
				uncertain = true
			case acknowledged:
				before, uncertain = s.acked < d.begun, s.begun < d.ended
			case failed:
				uncertain = s.begun < d.ended
			}
			for k := range s.samples {
				if !d.series.has(k) {
					continue
				}
				if before {
					x.dead[k] |= s.samples[k] & d.times
				}
				if before || uncertain {
					x.live[k] &^= d.times
				}
			}
		}
	}
	return list
}

// allowed describes the correct answers to a query.
type allowed struct {
	// required contains the samples that the answer must contain, and shown all samples that it may contain.
	required, shown content
}

// allow returns the correct answers to a query that runs now. begin contains the expectations at its start. late is
// true if unsealed samples may be missing.
func (j *judge) allow(begin []expectation, late bool) (x allowed) {
	now := j.expect()
	for i, s := range j.sent {
		for k := range s.samples {
			// Samples that were deleted before the query started must not be in the answer.
			dead := samples(0)
			if i < len(begin) {
				dead = begin[i].dead[k]
				if s.sealed || !late {
					x.required[k] |= begin[i].live[k] & now[i].live[k]
				}
			}
			x.shown[k] |= s.samples[k] &^ dead
		}
	}
	return x
}

// answer is the result of a query.
type answer struct {
	counts [seriesCount]tally
	// flagged contains the times of buckets with a warning that they include deleted samples.
	flagged [seriesCount]samples
}

// check fails the history if the judge doesn't allow an answer.
func (w *world) check(who string, tenant int, res resolution, got answer, begin []expectation) {
	if w.phases[res] >= hidden && (res == raw || w.phases[res] >= expired) {
		return
	}
	rawless := w.phases[raw] >= expired
	allow := w.judge.allow(begin, res > raw && rawless)
	for k := range got.counts {
		if tenantOf(k) != tenant {
			continue
		}
		times := got.counts[k].times()
		flagged := samples(0)
		if rawless {
			flagged = got.flagged[k]
		}
		switch {
		case got.counts[k].isDoubled():
			w.fail("doubled: %s, resolution %d, series %d: %08x", who, res, k, got.counts[k])
		case allow.required[k]&^times != 0:
			w.fail("lost: %s, resolution %d, series %d: times %08b of %08b are missing",
				who, res, k, allow.required[k]&^times, allow.required[k])
		case times&^allow.shown[k]&^flagged != 0:
			w.fail("back: %s, resolution %d, series %d: times %08b are deleted", who, res, k, times&^allow.shown[k])
		}
	}
}
