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

// An election decides whose samples of a cluster of replicas are stored, by the time of the sample: the spans follow each
// other without a gap, and each belongs to one replica. It is a row of table chosen, which all processes share and
// change by compare-and-set only (design/ha-pairs.md).
//
//	time ─────►          from            from
//	  nobody's  │ span of a │   span of b  │  span of a, the last: its replica is the elected
//
// A election isn't changed: next makes the one that follows.
type election struct {
	// Retired is true if no process looks after the election until the cluster is heard again. It comes first in the row.
	Retired bool `json:"retired,omitempty"`
	// Epoch counts how often a replica was elected, Version how often the row was written.
	Epoch   int64 `json:"epoch"`
	Version int64 `json:"version"`
	// Beat counts how often a process has confirmed the elected replica. Whoever sees it unchanged for the
	// failover timeout, by a clock of its own, may elect another.
	Beat int64 `json:"beat"`
	// Terms are in the order of time; at most maxTerms.
	Terms []term `json:"spans"`
	// WatermarkMS is the reach of the elected replica's samples that were acknowledged, milliseconds: the greatest
	// timestamp, but for those that are ahead of the clock.
	WatermarkMS int64 `json:"watermark_ms"`
	// Taking is the process (a writer, hexadecimal) that stores the held samples of the replica that was elected last.
	// Until it is done, and sets this to "", everything after the last span's beginning is held.
	Taking string `json:"taking,omitempty"`
	// Leaving is true if the elected replica is too far behind: no process beats for it any more.
	Leaving bool `json:"leaving,omitempty"`
	// Low is the oldest era that may have held rows.
	Low int64 `json:"low"`
	// SinceMS is when the replica was elected, and HeardMS when it was last confirmed; for people.
	SinceMS int64 `json:"since_ms"`
	HeardMS int64 `json:"heard_ms"`
}

// term gives the samples after FromMS, milliseconds, to a replica.
type term struct {
	Replica string `json:"replica"`
	FromMS  int64  `json:"from_ms"`
}

const (
	// maxTerms bounds the spans of an election: samples older than the first are stored, whoever sends them.
	maxTerms = 16
	// heldEpochBeats is how many beats make an era, which is a partition of the held rows.
	heldEpochBeats = 32
)

var errMalformedElection = errors.New("ha: malformed record of the elected replica")

// firstElection elects the replica that is heard first. Its time begins a margin before its oldest sample: what other
// replicas have from there on is covered.
func firstElection(replica string, oldest int64, margin time.Duration, now time.Time) election {
	from := oldest - margin.Milliseconds() - 1
	ms := now.UnixMilli()
	return election{Epoch: 1, Beat: 1, Terms: []term{{replica, from}}, WatermarkMS: from, SinceMS: ms, HeardMS: ms}
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
	return c, nil
}

func (c *election) elected() string { return c.last().Replica }
func (c *election) last() term      { return c.Terms[len(c.Terms)-1] }

// settled reports whether the elected replica's samples are stored as they come.
func (c *election) settled() bool { return c.Taking == "" && !c.Leaving }

// heldEpoch is where held rows go now.
func (c *election) heldEpoch() int64 { return c.Beat / heldEpochBeats }

// Disposition is what becomes of a sample.
type Disposition uint8

const (
	Store Disposition = iota // it is stored
	Hold                     // it is held until the election is clear
	Drop                     // it is covered by another replica's
)

// disposition returns what becomes of a replica's sample at t. The elected replica's samples of the margin before its span are
// held too: the one before it may have lacked it.
func (c *election) disposition(replica string, t int64, margin time.Duration) Disposition {
	last := len(c.Terms) - 1
	if t > c.Terms[last].FromMS {
		if replica == c.Terms[last].Replica && c.settled() {
			return Store
		}
		return Hold
	}
	if last > 0 && replica == c.Terms[last].Replica && t > c.Terms[last].FromMS-margin.Milliseconds() {
		return Hold
	}
	for i := last - 1; i >= 0; i-- {
		if t > c.Terms[i].FromMS {
			if replica == c.Terms[i].Replica {
				return Store
			}
			return Drop
		}
	}
	return Store // Nobody is known to cover it.
}

// covered reports whether what a replica holds up to t needn't be kept any longer: the elected replica has gone on
// for a margin since.
func (c *election) covered(replica string, t int64, watermark int64, margin time.Duration) bool {
	return replica != c.elected() && c.Taking == "" && t <= max(watermark, c.WatermarkMS)-margin.Milliseconds()
}

// renewed adds a beat for the elected replica, with samples up to a watermark and from its oldest sample on.
func (c *election) renewed(watermark, oldest int64, margin time.Duration, now time.Time) election {
	next := c.flushed(watermark, oldest, margin)
	next.Beat++
	next.HeardMS, next.Retired = now.UnixMilli(), false
	return next
}

// flushed raises the watermark, and lets the first span begin earlier if its replica turns out to have older samples.
func (c *election) flushed(watermark, oldest int64, margin time.Duration) election {
	next := *c
	next.WatermarkMS = max(c.WatermarkMS, watermark)
	if from := oldest - margin.Milliseconds() - 1; len(c.Terms) == 1 && oldest != math.MaxInt64 && from < c.Terms[0].FromMS {
		next.Terms = []term{{c.elected(), from}}
	}
	return next
}

// elect gives what comes after the watermark, which is limit at most, to a replica, whose held samples taker will store.
func (c *election) elect(replica string, limit int64, taker string, now time.Time) election {
	next := *c
	next.Epoch++
	next.Beat++
	next.WatermarkMS = max(c.last().FromMS, min(c.WatermarkMS, limit))
	next.Terms = append(slices.Clone(c.Terms), term{replica, next.WatermarkMS})
	if n := len(next.Terms); n > maxTerms {
		next.Terms = next.Terms[n-maxTerms:]
	}
	next.Taking, next.Leaving, next.SinceMS = taker, false, now.UnixMilli()
	return next
}
