package ha

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// An election decides, by the timestamp of a sample, which replica's samples of a cluster are stored. It consists of
// consecutive terms, each of one replica. It is stored as a row of table chosen, which all processes read and change by
// compare-and-set only (design/ha-pairs.md).
//
//	time ─────►          from            from
//	  no replica │ term of a │   term of b  │  last term, of a: a is elected
//
// An election is immutable: its methods return the next one.
type election struct {
	// Retired is true if no process manages the cluster until one of its replicas sends again. It is the first field,
	// so that retired rows have a common prefix.
	Retired bool `json:"retired,omitempty"`
	// Epoch counts the elections, and Version the writes of the row.
	Epoch   int64 `json:"epoch"`
	Version int64 `json:"version"`
	// Beat counts the heartbeats, with which processes confirm the elected replica. If a process reads the same value
	// for the failover timeout, by its own clock, it may elect another replica.
	Beat int64 `json:"beat"`
	// Terms are in time order, at most maxTerms.
	Terms []term `json:"spans"`
	// WatermarkMS is the reach of the elected replica's acknowledged samples, and FrontMS their front (doc.go) or
	// WatermarkMS if that is later, both in milliseconds.
	WatermarkMS int64 `json:"watermark_ms"`
	FrontMS     int64 `json:"front_ms"`
	// Taking is the process (a writer, in hexadecimal) that stores the held samples of the newly elected replica, or ""
	// if there is none. While it is set, all samples after the start of the last term are held.
	Taking string `json:"taking,omitempty"`
	// Leaving is true if the elected replica lags too far, or has returned after a gap. Processes then send no
	// heartbeats for it.
	Leaving bool `json:"leaving,omitempty"`
	// Low is the oldest held epoch that may still have rows.
	Low int64 `json:"low"`
	// SinceMS is when the replica was elected, and HeardMS when it was last confirmed. Both are only displayed.
	SinceMS int64 `json:"since_ms"`
	HeardMS int64 `json:"heard_ms"`
}

// term assigns the samples after FromMS, in milliseconds, to a replica.
type term struct {
	Replica string `json:"replica"`
	FromMS  int64  `json:"from_ms"`
}

const (
	// maxTerms bounds the terms of an election. Samples older than the first term are stored from every replica.
	maxTerms = 16
	// heldEpochHeartbeats is the number of heartbeats per held epoch, a partition of the held rows.
	heldEpochHeartbeats = 32
)

var errMalformedElection = errors.New("ha: malformed record of the elected replica")

// firstElection elects the first replica of a cluster. Its term starts a margin before its oldest sample, so that later
// samples of other replicas are covered.
func firstElection(replica string, oldest int64, margin time.Duration, now time.Time) election {
	from := oldest - margin.Milliseconds() - 1
	ms := now.UnixMilli()
	return election{Epoch: 1, Beat: 1, Terms: []term{{replica, from}}, WatermarkMS: from, FrontMS: from, SinceMS: ms,
		HeardMS: ms}
}

func parseElection(row []byte) (election, error) {
	var c election
	if err := json.Unmarshal(row, &c); err != nil {
		return c, fmt.Errorf("%w: %w", errMalformedElection, err)
	}
	ordered := slices.IsSortedFunc(c.Terms, func(a, b term) int { return cmp.Compare(a.FromMS, b.FromMS) })
	if len(c.Terms) == 0 || len(c.Terms) > maxTerms || !ordered || c.Low < 0 || c.Low > c.heldEpoch() {
		return c, fmt.Errorf("%w: %d spans, heartbeat %d, low %d", errMalformedElection, len(c.Terms), c.Beat, c.Low)
	}
	c.FrontMS = max(c.FrontMS, c.WatermarkMS)
	return c, nil
}

func (c *election) electedReplica() string { return c.lastTerm().Replica }
func (c *election) lastTerm() term         { return c.Terms[len(c.Terms)-1] }

// isSettled reports whether the elected replica's samples are stored without being held.
func (c *election) isSettled() bool { return c.Taking == "" && !c.Leaving }

// heldEpoch returns the held epoch of new rows.
func (c *election) heldEpoch() int64 { return c.Beat / heldEpochHeartbeats }

// Disposition is the decision to store, hold or drop a sample.
type Disposition uint8

const (
	StoreSample Disposition = iota // store it
	HoldSample                     // hold it until it is covered or its replica is elected
	DropSample                     // drop it, because samples of another replica cover it
)

// disposition returns whether a replica's sample at t is stored, held or dropped. Samples of the elected replica within
// the margin before its term are also held, because the previous replica may have missed them.
func (c *election) disposition(replica string, t int64, margin time.Duration) Disposition {
	last := len(c.Terms) - 1
	if t > c.Terms[last].FromMS {
		if replica == c.Terms[last].Replica && c.isSettled() {
			return StoreSample
		}
		return HoldSample
	}
	if last > 0 && replica == c.Terms[last].Replica && t > c.Terms[last].FromMS-margin.Milliseconds() {
		return HoldSample
	}
	for i := last - 1; i >= 0; i-- {
		if t > c.Terms[i].FromMS {
			if replica == c.Terms[i].Replica {
				return StoreSample
			}
			return DropSample
		}
	}
	return StoreSample // The sample precedes all terms, so it may not be covered.
}

// isCovered reports whether a replica's held samples up to t can be deleted, because the elected replica's watermark is
// a margin beyond t.
func (c *election) isCovered(replica string, t int64, watermark int64, margin time.Duration) bool {
	return replica != c.electedReplica() && c.Taking == "" && t <= max(watermark, c.WatermarkMS)-margin.Milliseconds()
}

// progress is the progress of the elected replica's samples in the current term.
type progress struct {
	// reach and front are those of acknowledged samples, and oldest is their min timestamp, all in milliseconds.
	reach, front, oldest int64
}

// noProgress is the progress without samples.
var noProgress = progress{reach: math.MinInt64, front: math.MinInt64, oldest: math.MaxInt64}

// join returns the progress of the samples of both.
func (p progress) join(other progress) progress {
	return progress{max(p.reach, other.reach), max(p.front, other.front), min(p.oldest, other.oldest)}
}

// withHeartbeat returns the election with one more heartbeat, and with the changes that withWatermark makes.
func (c *election) withHeartbeat(p progress, margin time.Duration, now time.Time) election {
	next := c.withWatermark(p, margin)
	next.Beat++
	next.HeardMS, next.Retired = now.UnixMilli(), false
	return next
}

// withWatermark returns the election with a watermark and a front that are at least those of p. If the election has
// only one term, and the oldest sample is less than a margin after its start, the term starts earlier: a margin before
// that sample.
func (c *election) withWatermark(p progress, margin time.Duration) election {
	next := *c
	next.WatermarkMS = max(c.WatermarkMS, p.reach)
	next.FrontMS = max(c.FrontMS, p.front, next.WatermarkMS)
	if from := p.oldest - margin.Milliseconds() - 1; len(c.Terms) == 1 && p.oldest != math.MaxInt64 &&
		from < c.Terms[0].FromMS {
		next.Terms = []term{{c.electedReplica(), from}}
	}
	return next
}

// withTerm returns an election with a new term of a replica, unless it is the elected one. If the replica has passed the front of the elected one,
// the term starts there. Otherwise it starts at the watermark, or at limit if that is earlier. The process taker will
// store the replica's held samples.
func (c *election) withTerm(to candidate, limit int64, taker string, now time.Time) election {
	next := *c
	next.Epoch++
	next.Beat++
	next.Taking, next.Leaving = taker, false
	if to.replica == c.electedReplica() {
		return next // Its term goes on.
	}
	next.WatermarkMS = max(c.lastTerm().FromMS, min(c.WatermarkMS, limit))
	if to.passed {
		next.WatermarkMS = max(c.lastTerm().FromMS, c.FrontMS)
	}
	next.FrontMS = next.WatermarkMS
	next.Terms = append(slices.Clone(c.Terms), term{to.replica, next.WatermarkMS})
	if n := len(next.Terms); n > maxTerms {
		next.Terms = next.Terms[n-maxTerms:]
	}
	next.SinceMS = now.UnixMilli()
	return next
}
