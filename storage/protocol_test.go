package storage

import (
	"context"
	"flag"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/soak"
)

var protocolFile = flag.String("protocol.file", "", "a file with a history to replay, instead of those that are drawn")

// TestProtocol runs seeded histories on a Store, with faults, crashes and clock changes, and compares every answer with
// a plain model. A failing history is shortened and printed. To replay it, put it in a file and pass -protocol.file.
func TestProtocol(t *testing.T) {
	t.Parallel()
	if *protocolFile != "" {
		text, err := os.ReadFile(*protocolFile)
		require.NoError(t, err)
		require.Empty(t, runHistory(parseHistory(string(text))))
		return
	}
	for kind, seeds := range map[string]int{"memory": 200, "pebble": 25} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range protocolSeeds(t, seeds) {
				h := makeHistory(seed, kind)
				if problem := runHistory(h); problem != "" {
					h = shrinkHistory(h)
					t.Fatalf("seed %d: %s\n%s\nas a shorter history: %s", seed, problem, h, runHistory(h))
				}
			}
		})
	}
}

// protocolSeeds yields the seeds of a test's histories. There are fewer in short runs.
func protocolSeeds(t *testing.T, seeds int) iter.Seq[uint64] {
	first := soak.FirstSeed(t)
	if seeds = soak.Histories(t, seeds); testing.Short() && !soak.UnderRace {
		seeds = max(1, seeds/5)
	}
	return func(yield func(uint64) bool) {
		for i := 0; i < seeds && yield(first+uint64(i)); i++ {
		}
	}
}

// TestProtocolRegressions replays histories that have failed in the past.
func TestProtocolRegressions(t *testing.T) {
	files, err := os.ReadDir("testdata/protocol")
	require.NoError(t, err)
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			text, err := os.ReadFile("testdata/protocol/" + f.Name())
			require.NoError(t, err)
			for _, kind := range []string{"memory", "pebble"} {
				h := parseHistory(string(text))
				if strings.Contains(h[0], "processes=") {
					require.Empty(t, runHistory(h))
					break
				}
				h[0] += " engine=" + kind
				require.Empty(t, runHistory(h), kind)
			}
		})
	}
}

// shrinkHistory removes lines while the history still fails. It stops after some seconds.
func shrinkHistory(h history) history {
	deadline := time.Now().Add(15 * time.Second)
	fails := func(h history) bool { return runHistory(h) != "" }
	for size := len(h) / 2; size >= 1 && time.Now().Before(deadline); {
		cut := false
		for i := 1; i+size <= len(h) && time.Now().Before(deadline); {
			shorter := slices.Delete(slices.Clone(h), i, i+size)
			if fails(shorter) {
				h, cut = shorter, true
			} else {
				i += size
			}
		}
		if !cut {
			size /= 2
		}
	}
	for i := range h { // samples of writes
		for {
			words := strings.Fields(h[i])
			at := slices.IndexFunc(words, func(w string) bool { return strings.Contains(w, "@") })
			if at < 0 || time.Now().After(deadline) {
				break
			}
			cut := false
			for ; at < len(words) && len(words) > at+1; at++ {
				shorter := slices.Clone(h)
				shorter[i] = strings.Join(slices.Delete(slices.Clone(words), at, at+1), " ")
				if strings.Contains(shorter[i], "@") && fails(shorter) {
					h, cut = shorter, true
					break
				}
			}
			if !cut {
				break
			}
		}
	}
	return h
}

// quiet checks that no unsealed state is left after some rounds of the sealing loop without faults.
func (r *protocolRun) quiet() {
	ctx := context.Background()
	r.faults, r.hooks = nil, nil
	r.tolerate("applying what was withheld", r.eng.inner.ApplyWithheld(ctx))
	everything := func() map[protocolSeries]*chunk.Samples {
		for _, tenant := range []string{"ann", "bob"} {
			if err := r.query([]string{tenant}); err != nil {
				r.fail("%v", err)
			}
		}
		return r.answer(ctx)
	}
	everything()
	r.round(ctx)
	everything()
	if r.problem != "" {
		return
	}
	r.pass(4*24*time.Hour + time.Hour)
	for range 2 {
		r.round(ctx)
	}
	r.emptyHead()
	before := encodeAnswer(everything())
	r.restart(true, 0)
	r.round(ctx)
	if after := encodeAnswer(everything()); !slices.Equal(before, after) {
		r.fail("a restart changed the answer")
	}
	r.rest(ctx)
}

// answer reads all samples of the tenants.
func (r *protocolRun) answer(ctx context.Context) map[protocolSeries]*chunk.Samples {
	out := map[protocolSeries]*chunk.Samples{}
	for _, tenant := range []string{"ann", "bob"} {
		selected, err := r.store.Select(ctx, query.Query{Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime})
		if err != nil {
			r.tolerate("selecting", err)
		}
		for _, s := range selected {
			samples := &chunk.Samples{}
			r.tolerate("reading", s.Samples(samples))
			out[protocolSeries{tenant, s.Labels.String()}] = samples
		}
	}
	return out
}

// rest fails the history if unsealed state is left.
func (r *protocolRun) rest(ctx context.Context) {
	r.emptyHead()
	s := r.store
	now := r.now.Load()
	oldest := format.FloorDiv(r.base.UnixMilli(), format.DayMS)*format.DayMS - 40*format.DayMS
	for p := range protocolPartitions {
		// Slots that aren't listed may contain rows whose writes had an unknown outcome. All other rows must have been
		// deleted.
		for slot := s.period.SlotOf(oldest); slot <= s.period.SlotOf(now)+
			2*(format.DayMS/s.period.All()[0].SlotMS); slot++ {
			r.leftover(ctx, engine.Range{Table: engine.Stage, Partition: format.StagePartition(slot, p)})
			r.nothing(ctx, engine.Range{Table: engine.Defined, Partition: format.StagePartition(slot, p)})
		}
		work, err := s.WaitingWork(ctx, p)
		if err != nil {
			r.fail("%v", err)
		}
		for _, w := range work {
			if now-s.period.SlotEnd(w.Slot) > format.YoungMS {
				r.fail("slot %d of partition %d is older than two days, and still listed", w.Slot, p)
			}
		}
	}
	stats, err := s.Check(ctx, func(problem string) { r.fail("check: %s", problem) })
	if err != nil || stats.Problems > 0 {
		r.fail("check: %d problems, %v", stats.Problems, err)
	}
}

// emptyHead fails the history if the head isn't empty once everything is sealed.
func (r *protocolRun) emptyHead() {
	h := r.store.head
	r.store.ReleaseSeries()
	if n, bytes := h.SeriesCount(), h.Bytes(); n != 0 || bytes != 0 {
		r.fail("all is sealed, and the head says that it holds %d series and %d bytes", n, bytes)
	}
}

// nothing fails the history if one of the rows exists. It ignores the records of processed rows.
func (r *protocolRun) nothing(ctx context.Context, rows engine.Range) {
	for row, err := range r.store.eng.Scan(ctx, rows) {
		if err == nil && rows.Table == engine.Defined && row.Clustering[1].Int < 0 {
			continue // The records of processed rows remain.
		}
		r.fail("left in %s of %v: %v, %v", rows.Table, rows.Partition, row.Clustering, err)
		return
	}
}

func (r *protocolRun) leftover(ctx context.Context, rows engine.Range) {
	for row, err := range r.store.eng.Scan(ctx, rows) {
		if err != nil {
			r.fail("%v", err)
			return
		}
		if text := rowText(rows.Table, row.Clustering); !r.unsure[text] {
			r.fail("%s was acknowledged, is in %v and found by nobody", text, rows.Partition)
		}
	}
}
