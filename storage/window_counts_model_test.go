package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
)

// countsModel is a store whose series are written, counted, deleted and dropped at random.
type countsModel struct {
	*testStore
	rng *rand.Rand
	// compared is how many answers about windows were compared, stored how many of these windows had counts.
	compared, stored int
}

func newCountsModel(t *testing.T, seed uint64) *countsModel {
	m := &countsModel{rng: rand.New(rand.NewPCG(seed, 31))}
	m.testStore = openTestStore(t, func(o *Options) {
		withTestClasses(o)
		o.Partitions, o.seams.still = 2, true // A delete works nothing off beside the history, which moves the clock.
		o.seams.countingBytes = []int{0, 2000, 6000}[seed%3]
		if seed%4 == 0 {
			o.seams.pageSeries = 20
		}
	})
	if seed%2 == 0 {
		m.closeUnchecked()
		m.memory = unclosed{memory.New()}
		m.open()
	}
	return m
}

// write writes series of one of the last days, with values that few and many share.
func (m *countsModel) writeSome() {
	b := m.NewBatch("ann")
	ago := time.Duration(m.rng.IntN(46)) * time.Hour
	for i, n := m.rng.IntN(300), m.rng.IntN(120); n > 0; n-- {
		i++
		lb := labels.NewScratchBuilder(8)
		lb.Add(labels.MetricName, fmt.Sprintf("m%d", i%(1+m.rng.IntN(2)*5)))
		lb.Add("i", fmt.Sprint(i))
		lb.Add("job", []string{"web", "ci", "audit"}[i%3])
		if m.rng.IntN(3) == 0 {
			lb.Add("mod", fmt.Sprint(i%11))
		}
		if m.rng.IntN(9) == 0 {
			lb.Add(fmt.Sprintf("rare_%d", i%5), "x")
		}
		lb.Sort()
		s, err := b.Define(nil, lb.Labels())
		require.NoError(m.t, err)
		require.NoError(m.t, b.Float(s, m.now.Add(-ago).UnixMilli(), 0, float64(i)))
	}
	require.NoError(m.t, b.Commit(m.t.Context()))
}

// grow gives a metric more shards, so that series that come again have labels in two of them.
func (m *countsModel) grow() {
	window := m.period.RawWindowAt(m.now.Add(-time.Duration(m.rng.IntN(3*24)) * time.Hour).UnixMilli())
	row := format.ShardsRow(window, "ann", fmt.Sprintf("m%d", m.rng.IntN(6)), []int64{2, 8, 64}[m.rng.IntN(3)])
	require.NoError(m.t, m.Store.eng.Write(m.t.Context(), []engine.Batch{row}))
	m.reopen()
}

// reclass puts other series in a class from now on.
func (m *countsModel) reclass() {
	m.opts.Classes = []retention.Class{classOfJob("ci", []string{"ci", "web"}[m.rng.IntN(2)], keepShort), classOfJob("audit", "audit", keepLonger)}
	m.reopen()
}

func (m *countsModel) remove() {
	start := m.now.Add(-time.Duration(m.rng.IntN(4*24)) * time.Hour)
	of := labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, fmt.Sprintf("m%d", m.rng.IntN(6)))
	require.NoError(m.t, m.Delete(m.t.Context(), "ann", start.UnixMilli(), start.Add(20*time.Hour).UnixMilli(), of))
	if m.rng.IntN(2) == 0 {
		require.NoError(m.t, m.WorkOffDeletes(m.t.Context(), "ann"))
		require.NoError(m.t, m.CleanTombstones(m.t.Context(), "ann"))
	}
}

func (m *countsModel) step() {
	switch m.rng.IntN(12) {
	case 0, 1, 2:
		m.writeSome()
	case 3, 4:
		require.NoError(m.t, m.SealAll(m.t.Context()))
	case 5:
		m.now = m.now.Add(time.Duration(1+m.rng.IntN(30)) * time.Hour)
	case 6:
		m.countWindows()
		require.Zero(m.t, m.countWindows())
	case 7:
		m.reopen()
	case 8:
		m.grow()
	case 9:
		m.reclass()
	case 10:
		m.remove()
	case 11:
		require.NoError(m.t, m.SealAll(m.t.Context()))
		m.passes(m.now.Add(time.Duration(1+m.rng.IntN(3)) * day))
	}
}

func (m *countsModel) compare() {
	m.compared += m.requireCounts("ann", m.rng)
	windows, err := m.windowsOf(m.t.Context(), "ann", format.FirstWindow(0), format.LastWindow(0))
	require.NoError(m.t, err)
	for _, w := range windows {
		state, err := m.Counts().WindowState(m.t.Context(), "ann", w)
		require.NoError(m.t, err)
		if m.Counts().StoredCounts(m.t.Context(), "ann", w, state) != nil {
			m.stored++
		}
	}
}

// TestCountsOfRandomHistories compares counts with those of labels after random histories: late series, several shards,
// changes of classes, deletes, dropped windows and classes, restarts, and limits that make counting go through the
// series several times.
func TestCountsOfRandomHistories(t *testing.T) {
	t.Parallel()
	compared, stored := 0, 0
	for seed := range protocolSeeds(t, 8) {
		m := newCountsModel(t, seed)
		for range 60 {
			m.step()
			if m.rng.IntN(4) == 0 {
				m.compare()
			}
		}
		m.compare()
		compared, stored = compared+m.compared, stored+m.stored
	}
	require.Greater(t, stored, compared/4)
}
