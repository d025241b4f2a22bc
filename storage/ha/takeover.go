package ha

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// HeldWriter stores held samples of a tenant.
type HeldWriter interface {
	// Prepare loads the tombstones and waits until the head contains all staged samples. No delete is applied in this
	// process until the caller calls release. Prepare may then be called again.
	Prepare(ctx context.Context) (release func(), err error)
	// Add adds a held row's samples, except deleted samples and samples that aren't to be stored. If it returns an
	// error, the caller keeps the row and retries.
	Add(ctx context.Context, row HeldSamples) (Added, error)
	// Commit makes the added samples durable and visible to queries, and returns their number.
	Commit(ctx context.Context) (samples int, err error)
}

// HeldSamples are the samples of a held row.
type HeldSamples struct {
	Cluster, Writer string
	Seq             int64
	Value           *format.HeldValue
	// Of returns the disposition of a sample at t. A sample with disposition HoldSample precedes the term. It is stored
	// only if it is newer than all samples of its series up to FromMS that the store contained before the takeover, and
	// if all samples of the series within MarginMS before FromMS are known. An exemplar with disposition HoldSample
	// isn't stored.
	Of               func(t int64) Disposition
	FromMS, MarginMS int64
}

// Added is the result of adding a held row.
type Added struct {
	Samples int
	// Full is true if the added samples should be committed.
	Full bool
	// Malformed is the error of an unreadable row, nil if the row was read.
	Malformed error
}

// takeover stores the held samples of a newly elected replica. Samples before the start of the last term are stored
// only if they are newer than the stored samples of their series, because the previous replica may have sent more
// samples of some series than of others. The newest stored timestamp of a series is read once, before any of its held
// samples is stored.
type takeover struct {
	c  *cluster
	ch *election
	// settled is the election after the takeover.
	settled election
	into    HeldWriter

	// added is true if samples were added and not committed.
	added bool
	done  []HeldID // rows that were added, or that have no samples to store
	// stored is the progress of the elected replica's stored samples, without the oldest.
	stored progress
	// rows and samples count the stored rows and samples.
	rows, samples int
}

func newTakeover(c *cluster, ch *election) *takeover {
	t := &takeover{c: c, ch: ch, settled: *ch, into: c.r.env.Host.HeldWriter(c.at.Tenant), stored: noProgress}
	t.settled.Taking, t.settled.Leaving = "", false
	return t
}

// storeHeldRows stores the elected replica's held rows of all processes, and returns the number of rows.
func (t *takeover) storeHeldRows(ctx context.Context) (n int, err error) {
	release, err := t.into.Prepare(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	replica := engine.Key{engine.Text(t.ch.electedReplica())}
	current, _ := t.c.current()
	for era := t.ch.Low; current != nil && era <= current.heldEpoch(); era++ {
		for row, err := range t.c.r.env.Engine.Scan(ctx, engine.Range{
			Table: engine.Held, Partition: format.HeldPartition(t.c.at.Tenant, t.c.at.Cluster, era), From: replica,
			To: replica,
		}) {
			if err != nil {
				return n, fmt.Errorf("ha: reading held samples: %w", err)
			}
			h := HeldID{
				Epoch: era, Replica: t.ch.electedReplica(), Writer: strings.Clone(row.Clustering[1].Text),
				Seq: row.Clustering[2].Int,
			}
			ok, err := t.add(ctx, h, row.Value)
			if err != nil {
				return n, err
			}
			if ok {
				n++
			}
		}
	}
	return n, t.commit(ctx)
}

// storeRows stores the samples of rows that this process owns.
func (t *takeover) storeRows(ctx context.Context, rows []heldRow) error {
	release, err := t.into.Prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, h := range idsOf(rows) {
		value, ok, err := t.c.r.readHeld(ctx, t.c.at, &h)
		if err != nil {
			return err
		}
		if !ok { // Another process has stored and deleted the row.
			t.c.releaseRows([]HeldID{h})
			continue
		}
		if ok, err = t.add(ctx, h, value); err != nil {
			return err
		}
		if !ok {
			t.c.releaseRows([]HeldID{h})
		}
	}
	return t.commit(ctx)
}

// add adds a row's samples, and commits when enough samples were added. It returns false for a corrupt row, which is
// kept.
func (t *takeover) add(ctx context.Context, h HeldID, value []byte) (ok bool, err error) {
	about, err := format.ParseHeld(value)
	if err != nil {
		t.c.corruptHeld(&h, err)
		return false, nil
	}
	t.added = true
	elected, margin := t.settled.electedReplica(), t.c.r.margin()
	added, err := t.into.Add(ctx, HeldSamples{
		Cluster: t.c.at.Cluster, Writer: h.Writer, Seq: h.Seq, Value: &about,
		Of: func(at int64) Disposition {
			becomes := t.settled.disposition(h.Replica, at, margin)
			if becomes == HoldSample && h.Replica != elected {
				return DropSample
			}
			return becomes
		},
		FromMS: t.settled.lastTerm().FromMS, MarginMS: margin.Milliseconds(),
	})
	if err != nil {
		return false, err
	}
	if added.Malformed != nil {
		t.c.corruptHeld(&h, added.Malformed)
		return false, nil
	}
	t.rows++
	t.samples += added.Samples
	if added.Samples > 0 && h.Replica == elected {
		front := min(t.c.heard.of(h.Replica).recentFront(), about.MaxT)
		t.stored = t.stored.join(progress{about.Reach, front, math.MaxInt64})
	}
	t.done = append(t.done, h)
	if !added.Full {
		return true, nil
	}
	return true, t.commit(ctx)
}

// commit makes the added samples durable, and then deletes their held rows. If this process stops in between, the same
// samples are stored again, which doesn't change answers.
func (t *takeover) commit(ctx context.Context) error {
	if !t.added {
		return nil
	}
	done := t.done
	t.added, t.done = false, nil
	n, err := t.into.Commit(ctx)
	if err != nil {
		return err
	}
	t.c.r.metrics.samples.WithLabelValues("taken").Add(float64(n))
	t.c.recordStored(t.ch.Epoch, t.stored)
	if err := t.c.r.env.Host.DeleteHeld(ctx, t.c.at, done); err != nil {
		return err
	}
	t.c.releaseRows(done)
	return t.renewElection(ctx)
}

// renewElection adds a heartbeat during a takeover, if a heartbeat is due.
func (t *takeover) renewElection(ctx context.Context) error {
	c, self := t.c, t.c.r.env.Member.Writer()
	c.mu.Lock()
	due := t.ch.Taking == self && membership.Elapsed(c.beatAt, c.r.now()) > c.r.maxElectionAge()/2
	c.mu.Unlock()
	if !due {
		return nil
	}
	_, done, err := c.updateElection(ctx, func(now *election) *election {
		if now == nil || now.Epoch != t.ch.Epoch || now.Taking != self {
			return nil
		}
		next := *now
		next.Beat++
		return &next
	})
	if err == nil && !done {
		return errReelected
	}
	return err
}
