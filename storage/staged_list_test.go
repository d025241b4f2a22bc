package storage

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/query"
)

// listRig is a shared store of one partition with multiple processes. A process can act between any two requests of
// another process.
type listRig struct {
	t    *testing.T
	mem  engine.Engine
	opts Options
	now  time.Time
}

// listProcess is a process, with a function to call before one of its next requests.
type listProcess struct {
	*Store
	r      *listRig
	left   atomic.Int64
	before func()
	// loses is true if that request is a write that is applied although it returns an error.
	loses bool
}

func newListRig(t *testing.T) *listRig {
	r := &listRig{t: t, mem: memory.New(), opts: DefaultOptions(), now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
	r.opts.Now = func() time.Time { return r.now }
	r.opts.Shared, r.opts.Partitions, r.opts.Retention, r.opts.seams.still = true, 1, 0, true
	return r
}

func (r *listRig) start() *listProcess {
	p := &listProcess{r: r}
	p.left.Store(-1)
	p.Store = openReady(r.t, faultengine.Wrap(r.mem, func(op faultengine.Op) faultengine.Action {
		if (op.Table == engine.Staged || op.Table == engine.Stage) && p.left.Add(-1) == -1 && p.before != nil {
			before := p.before
			p.before = nil
			before()
			if p.loses && op.Kind == faultengine.Write {
				return faultengine.Lose(nil)
			}
		}
		return faultengine.Pass()
	}), r.opts)
	r.t.Cleanup(func() { require.NoError(r.t, p.Close()) })
	return p
}

// at sets the function to call before the process makes its request number step to the staging log or its list.
func (p *listProcess) at(step int, before func()) {
	p.before = before
	p.left.Store(int64(step))
}

func (p *listProcess) write(at time.Time) error {
	b := p.NewBatch("ann")
	s, err := b.Define(nil, labels.FromStrings(labels.MetricName, "up"))
	require.NoError(p.r.t, err)
	require.NoError(p.r.t, b.Float(s, at.UnixMilli(), 0, 1))
	return b.Commit(p.r.t.Context())
}

func (r *listRig) listed() (rows int) {
	r.t.Helper()
	for key, err := range r.mem.Partitions(r.t.Context(), engine.Staged, nil, nil) {
		require.NoError(r.t, err)
		for _, err := range r.mem.Scan(r.t.Context(), engine.Range{Table: engine.Staged, Partition: key.Clone()}) {
			require.NoError(r.t, err)
			rows++
		}
	}
	return rows
}

// samples returns the number of samples that a new process finds.
func (r *listRig) samples() int {
	r.t.Helper()
	p := r.start()
	list, err := p.Select(r.t.Context(), query.Query{Tenant: "ann", MinT: 0, MaxT: r.now.UnixMilli()})
	require.NoError(r.t, err)
	n := 0
	for _, s := range list {
		var samples chunk.Samples
		require.NoError(r.t, s.Samples(&samples))
		n += samples.Len()
	}
	return n
}

// TestStagedListAtEachStep seals and unlists a slot with one process, and writes a late sample to the slot with another
// process at each step of the first process. Then it does the reverse: it seals and unlists the slot at each step of
// the write. A process that starts afterwards must find the acknowledged samples. At the end no slot may be listed.
func TestStagedListAtEachStep(t *testing.T) {
	late := 20 * 24 * time.Hour
	for _, unlists := range []bool{true, false} {
		for _, loses := range []bool{true, false} {
			for _, listed := range []bool{true, false} {
				steps := 0
				for ran := true; ran; steps++ {
					ran = false
					t.Run(fmt.Sprintf("unlists %t, loses %t, listed %t, step %d", unlists, loses, listed, steps),
						func(t *testing.T) {
							r := newListRig(t)
							sealer, writer := r.start(), r.start()
							at := r.now.Add(-late)
							want := 0
							if listed {
								require.NoError(t, sealer.write(at.Add(-time.Minute)))
								require.NoError(t, sealer.SealAll(t.Context()))
								want++
							}
							unlist := func() { _ = sealer.UnlistSlots(t.Context(), 0) }
							write := func() {
								if writer.write(at) == nil {
									want++
								}
							}
							if unlists {
								sealer.loses = loses
								sealer.at(steps, func() { ran = true; write() })
								unlist()
							} else {
								writer.loses = loses
								writer.at(steps, func() { ran = true; unlist() })
								write()
							}
							sealer.before, writer.before = nil, nil
							require.GreaterOrEqual(t, r.samples(), want)
							require.NoError(t, writer.write(at))
							unlist()
							require.Positive(t, r.listed())
							require.NoError(t, sealer.SealAll(t.Context()))
							for range 2 {
								require.NoError(t, sealer.UnlistSlots(t.Context(), 0))
							}
							require.Zero(t, r.listed())
						})
				}
				require.Greater(t, steps, 1)
			}
		}
	}
}

// TestYoungSlotsAreListedOnce counts the rows that commits to young slots write, and checks that the rows are kept for
// two days.
func TestYoungSlotsAreListedOnce(t *testing.T) {
	r := newListRig(t)
	r.now = r.now.Add(time.Hour)
	p := r.start()
	for range 3 {
		require.NoError(t, p.write(r.now))
		require.Equal(t, 2, r.listed(), "the slot and its unit")
		require.NoError(t, p.SealAll(t.Context()))
		require.NoError(t, p.UnlistSlots(t.Context(), 0))
	}
	r.now = r.now.Add(51 * time.Hour)
	p = r.start()
	require.NoError(t, p.UnlistSlots(t.Context(), 0))
	require.Equal(t, 1, r.listed(), "the unit")
	r.now = r.now.Add(6 * 24 * time.Hour)
	p = r.start()
	require.NoError(t, p.UnlistSlots(t.Context(), 0))
	require.Zero(t, r.listed())
}
