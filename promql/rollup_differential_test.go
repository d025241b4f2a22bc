package promql

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestRollupsAnswerAsRawSamplesDo runs generated queries over generated series, in every mode and at every age of the
// data. Each answer is compared with the answer of Prometheus' evaluator over the same samples, from a store that keeps
// them indefinitely:
//
//	what answered it                     it equals
//	whole buckets, samples, or both      the evaluator's answer: series, steps, errors, annotations; floats within
//	                                     1e-12 of the largest absolute value that entered the computation
//	buckets, windows moved or widened    the evaluator's for those windows, scaled if the function grows with them
//	samples made of buckets              Prometheus' function on these
//
// On Pebble, windows of rollups are compacted after they end. All values that are missing for lack of samples are
// reported in one info, or as an error if a function can't be answered.
func TestRollupsAnswerAsRawSamplesDo(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	all := (&roller{r: rand.New(rand.NewPCG(seed, 1))}).all()
	reference := unrolled(t, all)
	a := &rollupAsker{r: rand.New(rand.NewPCG(seed, 2)), called: map[string]int{}}
	for _, on := range []struct {
		engine  string
		open    func(t *testing.T) engine.Engine
		queries int
		starts  bool
	}{
		{"memory", func(*testing.T) engine.Engine { return memory.New() }, 200, false},
		{"memory, with start timestamps", func(*testing.T) engine.Engine { return memory.New() }, 200, true},
		{"Pebble", openPebble, 60, false},
	} {
		t.Run(on.engine, func(t *testing.T) {
			if testing.Short() {
				on.queries /= 5
			}
			eng := newMarkless(on.open(t))
			store := rolled(t, eng, all, 5*24*time.Hour, 20*24*time.Hour)
			require.NotZero(t, eng.lost)
			c := rollupContest{t: t, asker: a, store: store, reference: reference, truths: truthsOf(all),
				queries: on.queries, total: map[string]int{}, starts: on.starts}
			c.compacts = on.engine == "Pebble"
			c.young()
			eng.slots = nil
			c.old()
		})
	}
	if !testing.Short() {
		for _, name := range parserFunctions {
			require.NotZero(t, a.called[name], name)
		}
	}
}

func openPebble(t *testing.T) engine.Engine {
	eng := storagetest.Pebble(t)
	return eng
}

// markless is an engine that drops the commit records of slots with rollups. Slots without commit records exist while a
// seal is running, and if an earlier release sealed them.
type markless struct {
	engine.Engine
	slots map[int64]bool // nil: none
	lost  int
}

// newMarkless returns an engine that drops the commit records of the slots from unmarkedFrom to unmarkedTo.
func newMarkless(eng engine.Engine) *markless {
	m := &markless{Engine: eng, slots: map[int64]bool{}}
	for from := unmarkedFrom; from < unmarkedTo; from += 2 * hour {
		m.slots[from/(2*hour)] = true
	}
	return m
}

// rollupWindows is the number of the first window that holds rollups.
const rollupWindows = 1 << 40

// Write implements engine.Engine.
func (m *markless) Write(ctx context.Context, batches []engine.Batch) error {
	var kept []engine.Batch
	for _, b := range batches {
		if b.Table == engine.Sealed && b.Partition[0].Int >= rollupWindows {
			n := len(b.Mutations)
			b.Mutations = slices.DeleteFunc(slices.Clone(b.Mutations), func(m2 engine.Mutation) bool {
				return m.slots[m2.Clustering[0].Int]
			})
			m.lost += n - len(b.Mutations)
		}
		if len(b.Mutations) > 0 {
			kept = append(kept, b)
		}
	}
	return m.Engine.Write(ctx, kept)
}

// TakesClear implements engine.Clearing if the engine does.
func (m *markless) TakesClear() bool {
	c, ok := engine.As[engine.Clearing](m.Engine)
	return ok && c.TakesClear()
}

// rollupContest runs queries while the data gets older.
type rollupContest struct {
	t                *testing.T
	asker            *rollupAsker
	store, reference *rolledStore
	truths           truths
	queries          int
	compacts         bool
	starts           bool           // functions use start timestamps
	total            map[string]int // outcomes of all contests
}

// rollupModes are the modes in which queries are run.
var rollupModes = []string{"exact", "auto", "5m", "1h"}

// young runs queries while all data is kept and some of it is unsealed.
func (c *rollupContest) young() {
	first := c.ask("all is kept", "exact", 3*c.queries)
	require.Greater(c.t, first.segments["5m"], c.queries/10, "hardly a fragment was answered from 5m")
	require.Greater(c.t, first.segments["1h"], c.queries/10, "hardly a fragment was answered from 1h")
	require.Less(c.t, first.outcomes["empty"]+first.outcomes["error"], 10+c.queries*9/4, "hardly a query has an answer")
	require.Less(c.t, first.outcomes["undecided"]+first.outcomes["unsteady"], 10+c.queries/10)
	for _, mode := range rollupModes[1:] {
		c.ask("all is kept", mode, c.queries)
	}
}

// passes advances the clock until the given time. Twice per day of that time, the store checks for data to delete.
func (c *rollupContest) passes(until time.Time) {
	for {
		_, err := c.store.Expire(c.t.Context())
		require.NoError(c.t, err)
		if !c.store.now.Before(until) {
			return
		}
		c.store.now = c.store.now.Add(min(12*time.Hour, until.Sub(c.store.now)))
	}
}

// old runs queries after all data was sealed, while raw samples and rollups expire.
func (c *rollupContest) old() {
	require.NoError(c.t, c.store.SealAll(c.t.Context()))
	for _, age := range []struct {
		about   string
		horizon int64 // the clock
	}{
		{"half of raw is gone", rolledFrom + 5*day + 37*hour + 17*minute + 23*second},
		{"raw is gone", rolledTo + 14*day},
		{"half of 5m is gone", rolledFrom + 20*day + 31*hour + 3*minute},
		{"5m is gone", rolledTo + 40*day},
	} {
		c.passes(time.UnixMilli(age.horizon))
		c.compact()
		for _, mode := range rollupModes {
			c.ask(age.about, mode, c.queries)
		}
	}
	for _, what := range []string{
		"exact", "exact, raw being gone", "composite", "moved", "made of buckets", "refused",
	} {
		require.Greater(c.t, c.total[what], c.queries/10, what)
	}
	require.Equal(c.t, c.compacts, c.total["compacted chunks"] > 0)
	c.t.Log(c.total)
}

// compact compacts the windows of rollups that have ended.
func (c *rollupContest) compact() {
	if !c.compacts {
		return
	}
	for w, err := range c.store.Compactable(c.t.Context(), func() {}) {
		require.NoError(c.t, err)
		stats, err := c.store.Compact(c.t.Context(), w, func() {})
		require.NoError(c.t, err)
		require.Zero(c.t, stats.Left)
		c.total["compacted chunks"] += stats.Chunks
	}
}

// ask runs n queries that consist of one fragment, half as many composed queries, and some queries of dashboards.
func (c *rollupContest) ask(about, mode string, queries int) *rollupDuel {
	a, d := c.asker, newRollupDuel(c.t, c.store, c.reference, c.truths, c.starts)
	d.contest(about, func() asked { return a.at(a.simple()) }, mode, queries)
	if c.starts {
		d.contest(about,
			func() asked { return a.at(a.call(a.one("rate", "increase", "resets", "irate"), a.ranged, nil)) }, mode,
			queries)
	}
	d.contest(about, func() asked { return a.at(a.vector(1 + a.r.IntN(3))) }, mode, queries/2)
	d.contest(about, a.dashboard, mode, queries/10)
	for what, n := range d.outcomes {
		c.total[what] += n
	}
	for res, n := range d.segments {
		c.total["from "+res] += n
	}
	return d
}
