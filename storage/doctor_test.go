package storage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// readOnly is an engine that nothing may change.
type readOnly struct{ engine.Engine }

var errChanged = errors.New("something was about to be changed")

func (readOnly) Write(context.Context, []engine.Batch) error { return errChanged }
func (readOnly) Drop(context.Context, *engine.Table, engine.Key) error {
	return errChanged
}
func (readOnly) CompareAndSet(context.Context, *engine.Table, engine.Key, engine.Key, []byte, []byte) (bool, []byte, error) {
	return false, nil, errChanged
}

func (ts *testStore) examine() *Condition {
	ts.t.Helper()
	c, err := Examine(ts.t.Context(), readOnly{ts.eng}, ExamineOptions{Retention: ts.opts.Retention, Now: ts.opts.Now})
	require.NoError(ts.t, err)
	return c
}

func TestExamineNoStore(t *testing.T) {
	_, err := Examine(t.Context(), readOnly{memory.New()}, ExamineOptions{Now: time.Now})
	require.ErrorIs(t, err, ErrNoStore)
}

func TestExamineWaiting(t *testing.T) {
	ts := openTestStore(t, nil)
	require.Empty(t, ts.examine().Waiting)

	up, down := labels.FromStrings("__name__", "up"), labels.FromStrings("__name__", "down")
	ts.write("a", up, sample{ts.now.UnixMilli() + 1, 1})
	c := ts.examine()
	require.Len(t, c.Waiting, 1)
	require.Zero(t, c.Verified, "a slot that isn't over has no blobs to verify")
	require.Equal(t, ts.now.Add(2*time.Hour), c.Waiting[0].End.UTC())

	ts.now = ts.now.Add(25*time.Hour + 10*time.Minute)
	ts.write("a", down, sample{ts.now.Add(-72 * time.Hour).UnixMilli(), 1})
	c = ts.examine()
	require.Equal(t, 1, c.PendingRows)
	require.Equal(t, 2, c.Verified)
	require.Len(t, c.Waiting, 2)
	require.Equal(t, c.Waiting[0].End, c.Waiting[0].Since, "it was written in time")
	require.Equal(t, ts.now.Truncate(time.Hour), c.Waiting[1].Since.UTC(), "it waits since it came")
	require.Less(t, c.Waiting[1].End, c.Waiting[1].Since)

	require.NoError(t, ts.SealAll(t.Context()))
	c = ts.examine()
	require.Empty(t, c.Waiting)
	require.Zero(t, c.PendingRows)
	require.Equal(t, 1, c.Tenants)
	require.Empty(t, c.Expired)
}

func TestExamineDamage(t *testing.T) {
	ts := openTestStore(t, nil)
	slot := ts.period.SlotOf(ts.now.UnixMilli())
	row := func(op engine.Op, seq int64) engine.Batch {
		return engine.Batch{Table: engine.Stage, Partition: format.StagePartition(slot, 3), Mutations: []engine.Mutation{
			{Op: op, Clustering: engine.Key{engine.Text(newID()), engine.Int(seq)}, Timestamp: 1, Value: []byte("no blob at all, but long enough for one")},
		}}
	}
	var rows []engine.Batch
	for seq := range int64(maxDamagedNamed + 1) {
		rows = append(rows, row(engine.Put, seq))
	}
	require.NoError(t, ts.eng.Write(t.Context(), rows))
	ts.now = ts.now.Add(5 * time.Hour)
	c := ts.examine()
	require.Len(t, c.Waiting, 1)
	require.True(t, c.Waiting[0].OnlyDamaged())
	require.Equal(t, maxDamagedNamed+1, c.DamagedRows)
	require.Len(t, c.Damaged, maxDamagedNamed)
	require.Contains(t, c.Damaged[0].String(), "partition 3")
	for i := range rows { // For the check at the end.
		rows[i].Mutations[0].Op, rows[i].Mutations[0].Value = engine.Delete, nil
	}
	require.NoError(t, ts.eng.Write(t.Context(), rows))
}

func TestExamineExpired(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Retention = 48 * time.Hour })
	ts.write("a", labels.FromStrings("__name__", "up"), sample{ts.now.UnixMilli(), 1})
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = ts.now.Add(48*time.Hour + expireGrace)
	require.Empty(t, ts.examine().Expired, "the window's own day isn't over by then")

	ts.now = ts.now.Add(24 * time.Hour)
	c := ts.examine()
	require.Len(t, c.Expired, 1)
	window := c.Expired[0].Window
	require.Equal(t, ExpiredWindow{Tenant: "a", Window: window, Until: time.Unix(ts.expires(window, "a"), 0), Listed: true, Rows: true}, c.Expired[0])
	require.True(t, c.Expired[0].Until.Before(ts.now))

	// As on an engine where rows go by themselves: dropped, and still there.
	list := engine.Batch{Table: engine.Windows, Partition: engine.Key{engine.Text("a")}, Mutations: []engine.Mutation{
		{Op: engine.Delete, Clustering: engine.Key{engine.Int(window)}, Timestamp: 1},
	}}
	require.NoError(t, ts.eng.Write(t.Context(), []engine.Batch{list}))
	c = ts.examine()
	require.Len(t, c.Expired, 1)
	require.False(t, c.Expired[0].Listed)
	require.True(t, c.Expired[0].Rows)
	for _, table := range []*engine.Table{engine.Raw, engine.Catalog, engine.Sealed} {
		require.NoError(t, ts.eng.Drop(t.Context(), table, engine.Key{engine.Int(window)}))
	}
	require.Empty(t, ts.examine().Expired)
}

func TestExamineProcesses(t *testing.T) {
	eng := memory.New()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	start := func(name string, ahead time.Duration) *Store {
		o := DefaultOptions()
		o.Shared, o.Self = true, membership.Process{Name: name, Target: "all"}
		o.seams.still = true
		o.Now = func() time.Time { return now.Add(ahead) }
		s, err := Open(t.Context(), eng, o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.WaitReady(t.Context())) // Afterwards nobody but this test looks at the clock.
		return s
	}
	right, fast, slow := start("right", 0), start("fast", 5*time.Second), start("slow", -time.Hour)
	start("dead", 0)
	killed := start("killed", 0)
	lease, err := right.member.Leases(t.Context(), right.Partitions())
	require.NoError(t, err)
	_, ok, err := right.member.Take(t.Context(), 7, lease[7], right.member.Writer())
	require.NoError(t, err)
	require.True(t, ok)

	c, err := Examine(t.Context(), readOnly{eng}, ExamineOptions{Now: func() time.Time { return now }, Listen: func(ctx context.Context) error {
		require.NoError(t, killed.member.Beat(ctx)) // Its last one.
		now = now.Add(2 * time.Second)
		require.NoError(t, right.member.Beat(ctx))
		require.NoError(t, slow.member.Beat(ctx))
		now = now.Add(2 * time.Second)
		for _, s := range []*Store{right, fast, slow} {
			require.NoError(t, s.member.Beat(ctx))
		}
		now = now.Add(2 * time.Second)
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, right.member.Writer(), c.Leases[7].Owner)
	require.Empty(t, c.Leases[6].Owner)
	byName := map[string]ProcessSeen{}
	for _, p := range c.Processes {
		byName[p.Name] = p
	}
	require.Len(t, byName, 5)
	require.True(t, byName["killed"].Alive, "for all that is known")
	require.Zero(t, byName["killed"].Ahead)
	require.True(t, byName["right"].Alive)
	require.Zero(t, byName["right"].Ahead)
	require.Equal(t, 3*time.Second, byName["fast"].Ahead, "five, less the two since its beat")
	require.Equal(t, -time.Hour+time.Second, byName["slow"].Ahead)
	require.False(t, byName["dead"].Alive)
	require.Equal(t, 6*time.Second, byName["dead"].Quiet)
}
