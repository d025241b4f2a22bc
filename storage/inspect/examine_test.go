package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// readOnly is an engine whose writing methods return errChanged.
type readOnly struct{ engine.Engine }

var errChanged = errors.New("something was about to be changed")

func (readOnly) Write(context.Context, []engine.Batch) error { return errChanged }
func (readOnly) Drop(context.Context, *engine.Table, engine.Key) error {
	return errChanged
}
func (readOnly) CompareAndSet(
	context.Context, *engine.Table, engine.Key, engine.Key, []byte, []byte,
) (bool, []byte, error) {
	return false, nil, errChanged
}

// rig is a store with a constant clock.
type rig struct {
	*storage.Store
	t         testing.TB
	eng       engine.Engine
	now       time.Time
	retention time.Duration
}

func newRig(t testing.TB, change ...func(*storage.Options)) *rig {
	r := &rig{t: t, eng: storagetest.Pebble(t), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	r.Store = storagetest.Open(t, r.eng, append(change, func(o *storage.Options) {
		o.Now, r.retention = func() time.Time { return r.now }, o.Retention
	})...)
	storagetest.CheckAtEnd(t, r.Store)
	return r
}

// write writes a sample.
func (r *rig) write(tenant, metric string, at time.Time, v float64) {
	r.t.Helper()
	storagetest.Write(r.t, r.Store, tenant, labels.FromStrings(labels.MetricName, metric),
		storagetest.FloatSample{T: at.UnixMilli(), V: v})
}

func (r *rig) examine() *Condition {
	r.t.Helper()
	c, err := ExamineStore(r.t.Context(), readOnly{r.eng}, ExamineOptions{
		Retention: r.retention, Now: func() time.Time { return r.now },
	})
	require.NoError(r.t, err)
	return c
}

func TestExamineNoStore(t *testing.T) {
	_, err := ExamineStore(t.Context(), readOnly{memory.New()}, ExamineOptions{Now: time.Now})
	require.ErrorIs(t, err, storage.ErrNoStore)
}

func TestExamineWaiting(t *testing.T) {
	r := newRig(t)
	require.Empty(t, r.examine().Waiting)

	r.write("a", "up", r.now.Add(time.Millisecond), 1)
	c := r.examine()
	require.Len(t, c.Waiting, 1)
	require.Zero(t, c.Verified, "a slot that isn't over has no blobs to verify")
	require.Equal(t, r.now.Add(2*time.Hour), c.Waiting[0].End.UTC())

	r.now = r.now.Add(25*time.Hour + 10*time.Minute)
	r.write("a", "down", r.now.Add(-72*time.Hour), 1)
	c = r.examine()
	require.Equal(t, 2, c.Verified)
	require.Len(t, c.Waiting, 2)
	require.Equal(t, c.Waiting[0].End, c.Waiting[0].Since, "it was written in time")
	require.Equal(t, c.Waiting[1].End, c.Waiting[1].Since, "one process doesn't note when it came")

	require.NoError(t, r.SealAll(t.Context()))
	c = r.examine()
	require.Empty(t, c.Waiting)
	require.Equal(t, 1, c.Tenants)
	require.Empty(t, c.Expired)
}

func TestExamineDamage(t *testing.T) {
	r := newRig(t)
	slot := r.View().Period().SlotOf(r.now.UnixMilli())
	row := func(op engine.Op, seq int64) engine.Batch {
		return engine.Batch{Table: engine.Stage, Partition: format.StagePartition(
			slot, 3,
		), Mutations: []engine.Mutation{
			{
				Op: op, Clustering: engine.Key{engine.Text("0123456789abcdef"), engine.Int(seq)}, Timestamp: 1,
				Value: []byte("no blob at all, but long enough for one"),
			},
		}}
	}
	var rows []engine.Batch
	for seq := range int64(maxDamagedNamed + 1) {
		rows = append(rows, row(engine.Put, seq))
	}
	require.NoError(t, r.eng.Write(t.Context(), rows))
	r.now = r.now.Add(5 * time.Hour)
	c := r.examine()
	require.Len(t, c.Waiting, 1)
	require.True(t, c.Waiting[0].OnlyDamaged())
	require.Equal(t, maxDamagedNamed+1, c.DamagedRows)
	require.Len(t, c.Damaged, maxDamagedNamed)
	require.Contains(t, c.Damaged[0].String(), "partition 3")
	for i := range rows { // Otherwise the check at the end of the test fails.
		rows[i].Mutations[0].Op, rows[i].Mutations[0].Value = engine.Delete, nil
	}
	require.NoError(t, r.eng.Write(t.Context(), rows))
}

func TestExamineDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	open := func() *pebble.Engine {
		o := pebble.DefaultOptions()
		o.BlockBytes = 1 << 10
		eng, err := pebble.Open(dir, o)
		require.NoError(t, err)
		return eng
	}
	eng := open()
	s := storagetest.Start(t, eng)
	for i := range 100 { // With these rows, the damaged block has no rows that ExamineStore reads.
		storagetest.Write(t, s, "a", labels.FromStrings(labels.MetricName, "up", "i", fmt.Sprint(i)),
			storagetest.FloatSample{T: time.Now().UnixMilli(), V: float64(i)})
	}
	require.NoError(t, s.SealAll(t.Context()))
	require.NoError(t, s.Close())
	require.NoError(t, eng.CompactAll(t.Context()))
	require.NoError(t, eng.Close())
	examine := func(files bool) *Condition {
		eng := open()
		defer func() { require.NoError(t, eng.Close()) }()
		c, err := ExamineStore(t.Context(), eng, ExamineOptions{Now: time.Now, Files: files})
		require.NoError(t, err)
		return c
	}
	require.Zero(t, examine(true).Unreadable)

	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	for _, name := range tables {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		b[len(b)/2] ^= 1
		require.NoError(t, os.WriteFile(name, b, 0o600))
	}
	c := examine(true)
	require.GreaterOrEqual(t, c.Unreadable, len(tables))
	require.Len(t, c.Problems, c.Unreadable)
	require.GreaterOrEqual(t, c.Files, len(tables))
}

func TestExamineExpired(t *testing.T) {
	r := newRig(t, func(o *storage.Options) { o.Retention = 48 * time.Hour })
	r.write("a", "up", r.now, 1)
	require.NoError(t, r.SealAll(t.Context()))
	r.now = r.now.Add(48*time.Hour + 7*24*time.Hour)
	require.Empty(t, r.examine().Expired, "the window's own day isn't over by then")

	r.now = r.now.Add(24 * time.Hour)
	c := r.examine()
	require.Len(t, c.Expired, 1)
	window := c.Expired[0].Window
	until, err := r.View().Retention().LastExpiry(t.Context(), "a", window)
	require.NoError(t, err)
	require.Equal(t, ExpiredWindow{Tenant: "a", Window: window, Until: until, Listed: true, Rows: true}, c.Expired[0])
	require.True(t, c.Expired[0].Until.Before(r.now))

	// The window was dropped but still has rows, as on an engine where rows expire later.
	list := engine.Batch{Table: engine.Windows, Partition: engine.Key{engine.Text("a")}, Mutations: []engine.Mutation{
		{Op: engine.Delete, Clustering: engine.Key{engine.Int(window)}, Timestamp: 1},
	}}
	require.NoError(t, r.eng.Write(t.Context(), []engine.Batch{list}))
	c = r.examine()
	require.Len(t, c.Expired, 1)
	require.False(t, c.Expired[0].Listed)
	require.True(t, c.Expired[0].Rows)
	for _, table := range []*engine.Table{engine.Raw, engine.Catalog, engine.Sealed} {
		require.NoError(t, r.eng.Drop(t.Context(), table, engine.Key{engine.Int(window)}))
	}
	require.Empty(t, r.examine().Expired)
}

// processRows writes rows of processes, as these processes would.
type processRows struct {
	t     *testing.T
	eng   engine.Engine
	beats map[string]int64
}

// beat writes the next row of a process whose clock shows the time clock. The row's writer is the process's name.
func (p *processRows) beat(name string, clock time.Time) {
	p.t.Helper()
	p.beats[name]++
	row, err := json.Marshal(membership.Process{
		Name: name, Target: "all", ClockMS: clock.UnixMilli(), Beat: p.beats[name],
	})
	require.NoError(p.t, err)
	require.NoError(p.t, p.eng.Write(p.t.Context(), []engine.Batch{
		{Table: engine.Processes, Partition: engine.Key{engine.Int(0)}, Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Text(fmt.Sprintf("%-16s", name))}, Timestamp: p.beats[name], Value: row,
		}}},
	}))
}

func TestExamineProcesses(t *testing.T) {
	eng := memory.New()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := storagetest.Open(t, eng, storagetest.FixedClock(now), func(o *storage.Options) { o.Partitions = 8 })
	lease, err := s.Member().Leases(t.Context(), s.Partitions())
	require.NoError(t, err)
	_, ok, err := s.Member().SetLeaseOwner(t.Context(), 7, lease[7], "right")
	require.NoError(t, err)
	require.True(t, ok)

	const right, fast, slow, dead, killed = "right", "fast", "slow", "dead", "killed"
	off := map[string]time.Duration{fast: 5 * time.Second, slow: -time.Hour}
	rows := processRows{t, eng, map[string]int64{}}
	beat := func(names ...string) {
		for _, name := range names {
			rows.beat(name, now.Add(off[name]))
		}
	}
	beat(right, fast, slow, dead, killed)
	c, err := ExamineStore(t.Context(), readOnly{eng}, ExamineOptions{
		Now: func() time.Time { return now }, Listen: func(context.Context) error {
			beat(killed) // This is its last heartbeat.
			now = now.Add(2 * time.Second)
			beat(right, slow)
			now = now.Add(2 * time.Second)
			beat(right, fast, slow)
			now = now.Add(2 * time.Second)
			return nil
		},
	})
	require.NoError(t, err)
	require.Equal(t, "right", c.Leases[7].Owner)
	require.Empty(t, c.Leases[6].Owner)
	byName := map[string]ProcessSeen{}
	for _, p := range c.Processes {
		byName[p.Name] = p
	}
	require.Len(t, byName, 5)
	require.True(t, byName[killed].Alive, "for all that is known")
	require.Zero(t, byName[killed].Ahead)
	require.True(t, byName[right].Alive)
	require.Zero(t, byName[right].Ahead)
	require.Equal(t, 3*time.Second, byName[fast].Ahead, "five, less the two since its beat")
	require.Equal(t, -time.Hour+time.Second, byName[slow].Ahead)
	require.False(t, byName[dead].Alive)
	require.Equal(t, 6*time.Second, byName[dead].Quiet)
}
