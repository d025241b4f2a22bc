package doctor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/inspect"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// condition returns the condition of a healthy store with two processes. change modifies the condition. It may be nil.
func condition(change func(*inspect.Condition)) *inspect.Condition {
	c := &inspect.Condition{
		Created: noon.Add(-240 * time.Hour), Tenants: 1, Leases: make([]membership.Lease, 4),
		Periods: []format.Period{{SlotMS: 2 * 3600 * 1000, RawWindowMS: 24 * 3600 * 1000, Partitions: 4}},
	}
	for i := range 2 {
		c.Processes = append(c.Processes, inspect.ProcessSeen{Alive: true, Process: membership.Process{
			Name: fmt.Sprintf("host%d:9201", i), Target: "all", Version: "1.0", Writer: fmt.Sprint(i), StartedMS: 1,
		}})
	}
	for i := range c.Leases {
		c.Leases[i].Owner = fmt.Sprint(i % 2)
	}
	c.Waiting = []inspect.WaitingSlot{slotAt(1, -2*time.Hour)}
	if change != nil {
		change(c)
	}
	return c
}

// slotAt returns a waiting slot that ended the given time ago.
func slotAt(slot int64, over time.Duration) inspect.WaitingSlot {
	return inspect.WaitingSlot{Slot: slot, End: noon.Add(-over), Since: noon.Add(-over)}
}

func TestStore(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*inspect.Condition)
		level  Level
		what   string
		do     string
	}{
		{name: "healthy"},
		{name: "a copy", change: func(c *inspect.Condition) { c.RestoredFrom = "20260501T100000Z-1f" },
			level: Note, what: "the store was restored from the backup 20260501T100000Z-1f", do: "another destination"},
		{
			name:   "a slot settles",
			change: func(c *inspect.Condition) { c.Waiting = append(c.Waiting, slotAt(0, 10*time.Minute)) },
		},
		{
			name:   "a slot is due",
			change: func(c *inspect.Condition) { c.Waiting = append(c.Waiting, slotAt(0, time.Hour)) },
		},
		{name: "behind", change: func(c *inspect.Condition) {
			c.Waiting = append(c.Waiting, slotAt(0, 5*time.Hour), slotAt(0, 3*time.Hour))
		},
			level: Warning,
			what:  "3 slots with unsealed samples, counted once per partition; 2 (1 slot) overdue, the oldest by 5 h",
			do:    "cassia_downsample_lag_seconds"},
		{
			name:   "far behind",
			change: func(c *inspect.Condition) { c.Waiting = append(c.Waiting, slotAt(0, 50*time.Hour)) }, level: Error,
			what: "the oldest by 2 d",
		},
		{name: "late data that just came", change: func(c *inspect.Condition) {
			c.Waiting = append(c.Waiting, inspect.WaitingSlot{
				End: noon.Add(-90 * 24 * time.Hour), Since: noon.Add(-30 * time.Minute),
			})
		}},
		{name: "damage doesn't count as lag", change: func(c *inspect.Condition) {
			w := slotAt(0, 90*time.Hour)
			w.Blobs, w.Damaged = 2, 2
			c.Waiting = append(c.Waiting, w)
		}},
		{name: "damage", change: func(c *inspect.Condition) {
			c.DamagedRows = 1
			c.Damaged = []inspect.DamagedRow{{
				Slot: 7, End: noon.Add(-24 * time.Hour), Partition: 3, Writer: "ab", Seq: 5,
				Err: errors.New("checksum"),
			}}
		}, level: Error,
			what: "1 staged blob can't be read: stage: slot 7, until 2026-04-30T12:00:00Z, partition 3, writer ab, " +
				"seq 5: checksum",
			do: "DELETE FROM ks.stage WHERE slot = 7 AND partition = 3 AND writer = 0xab AND seq = 5;"},
		{
			name: "nobody is there", change: func(c *inspect.Condition) { c.Processes = nil }, level: Warning,
			what: "no running process was found", do: "cassia serve",
		},
		{
			name:   "nobody seals",
			change: func(c *inspect.Condition) { c.Processes[0].Target, c.Processes[1].Target = "read", "write" },
			level:  Warning, what: "no process with --target=downsample", do: "cassia serve --target=downsample",
		},
		{name: "roles apart", change: func(c *inspect.Condition) {
			c.Processes = append(c.Processes, c.Processes[0])
			c.Processes[0].Target, c.Processes[1].Target, c.Processes[2].Target = "read", "downsample", "write"
			for i := range c.Leases {
				c.Leases[i].Owner = "1"
			}
		}},
		{name: "one hangs", change: func(c *inspect.Condition) {
			c.Processes = append(c.Processes, inspect.ProcessSeen{
				Quiet: time.Minute, Process: membership.Process{Name: "host9", Target: "all", StartedMS: 1},
			})
		}, level: Note, what: "no heartbeat: host9 (all) since 60.0 s"},
		{name: "a command has ended", change: func(c *inspect.Condition) {
			c.Processes = append(c.Processes, inspect.ProcessSeen{
				Quiet: time.Minute, Process: membership.Process{Name: "a command", Target: "read"},
			})
		}},
		{name: "one was stopped", change: func(c *inspect.Condition) {
			c.Processes = append(c.Processes, inspect.ProcessSeen{
				Quiet:   time.Minute,
				Process: membership.Process{Name: "host9", Target: "all", StartedMS: 1, Leaving: true},
			})
		}},
		{name: "one has ended", change: func(c *inspect.Condition) {
			c.Processes = append(c.Processes, inspect.ProcessSeen{
				Quiet: time.Hour, Process: membership.Process{Name: "host9", Target: "all", StartedMS: 1},
			})
		}},
		{
			name: "an owner is dead", change: func(c *inspect.Condition) { c.Leases[2].Owner = "9" }, level: Warning,
			what: "1 of 4 partitions have no running owner: 2", do: "leases",
		},
		{
			name: "a lease is free", change: func(c *inspect.Condition) { c.Leases[2].Owner = "" }, level: Warning,
			what: "no running owner: 2",
		},
		{
			name: "retentions", change: func(c *inspect.Condition) { c.Keeps = []string{"raw 240h", "raw 720h"} },
			level: Note, what: "different retentions: raw 240h; raw 720h", do: "the same --retention",
		},
		{
			name: "versions", change: func(c *inspect.Condition) { c.Processes[1].Version = "1.1" }, level: Note,
			what: "different versions: 1.0, 1.1",
		},
		{name: "past the retention not deleted, the oldest since", change: func(c *inspect.Condition) {
			c.Expired = []inspect.ExpiredWindow{
				{Tenant: "a", Window: 3, Until: noon.Add(-24 * time.Hour), Listed: true, Rows: true},
			}
		}, level: Warning, what: "1 window past the retention not deleted, the oldest since 2026-04-30",
			do: "--retention.raw"},
		{name: "leftovers", change: func(c *inspect.Condition) {
			c.Expired = []inspect.ExpiredWindow{
				{Tenant: "a", Window: 3, Rows: true}, {Tenant: "b", Window: 3, Rows: true},
			}
		}, level: Note, what: "1 window past the retention still have rows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := StoreOptions{Shared: true, Keyspace: "ks", Flags: "--flags", Now: noon}
			got := worst(t, CheckStore(condition(c.change), o))
			require.Equal(t, c.level, got.Level, got.What)
			require.Contains(t, got.What, c.what)
			require.Contains(t, got.Do, c.do)
		})
	}
}

func TestStoreOfADirectory(t *testing.T) {
	c := condition(func(c *inspect.Condition) {
		c.Processes, c.Leases = nil, nil
		c.Waiting = append(c.Waiting, slotAt(0, 50*time.Hour))
	})
	got := worst(t, CheckStore(c, StoreOptions{Now: noon}))
	require.Equal(t, Error, got.Level)
	require.Contains(t, got.Do,
		"`cassia serve` seals them within minutes of its start; otherwise search its log for \"sealing failed\", and look at cassia_downsample_lag_seconds on /metrics")
}

func TestStoreWithDamagedFiles(t *testing.T) {
	c := condition(func(c *inspect.Condition) { c.Files, c.FileBytes = 3, 4096 })
	healthy := ok("3 files, 4096 bytes: every block matches its checksum")
	require.Equal(t, []Finding{healthy}, checkDamagedFiles(c, StoreOptions{}))
	c.Unreadable, c.Problems = 7, []string{"a", "b", "c", "d", "e", "f", "g"}
	got := worst(t, CheckStore(c, StoreOptions{Now: noon, Flags: "--storage.path=data"}))
	require.Equal(t, Error, got.Level)
	require.Equal(t, "7 damaged parts: a, b, c, d, e and 2 more", got.What)
	require.Contains(t, got.Do, "cassia restore --damaged --from=BACKUPS --storage.path=data")
}

func TestStoreWithALoweredRetention(t *testing.T) {
	day := func(n int) time.Time { return noon.AddDate(0, 0, n) }
	c := condition(func(c *inspect.Condition) {
		for range 12 {
			c.Hidden = append(c.Hidden, retention.Change{
				Tenant: "a", Class: "audit", Resolution: rollup.Raw, From: day(-60), To: day(-30),
				Was: 90 * 24 * time.Hour, Goes: day(5),
			})
		}
		c.Hidden[1].Class, c.Hidden[1].Was = "", 0
	})
	got := checkHidden(c)
	require.Len(t, got, 11)
	require.Equal(t,
		`a lowered retention hides raw of "a", class "audit", from 2026-03-02 until 2026-04-01`, got[0].What)
	require.Contains(t, got[0].Why, "it was kept for 90 d before; it will be deleted from 2026-05-06 on")
	require.Equal(t, `a lowered retention hides raw of "a" from 2026-03-02 until 2026-04-01`, got[1].What)
	require.Contains(t, got[1].Why, "kept forever")
	require.Equal(t, "2 more hidden ranges", got[10].What)
}

func TestClockThatIsNotBelieved(t *testing.T) {
	got := worst(t, CheckStore(
		condition(func(c *inspect.Condition) { c.Processes[0].Doubted = true }), StoreOptions{Shared: true, Now: noon},
	))
	require.Equal(t, Error, got.Level)
	require.Contains(t, got.What, ") is untrusted")

	c := condition(func(c *inspect.Condition) {
		c.Processes, c.Leases, c.ClockDoubted, c.ClockSeen = nil, nil, true, noon.Add(-60*24*time.Hour)
	})
	got = worst(t, CheckStore(c, StoreOptions{Now: noon}))
	require.Equal(t, Warning, got.Level)
	require.Contains(t, got.What, "after the time last recorded in the store")
	require.Contains(t, got.Do, "--storage.today="+noon.Format(time.DateOnly))
	c.ClockSeen = noon.Add(60 * 24 * time.Hour)
	found := worst(t, CheckStore(c, StoreOptions{Now: noon}))
	require.Contains(t, found.What, "before the time last recorded in the store")
	c.DroppedAhead = noon.Add(24 * time.Hour)
	got = worst(t, CheckStore(c, StoreOptions{Now: noon}))
	require.Equal(t, Error, got.Level)
	require.Contains(t, got.What, "were deleted because a clock was fast")
}

func TestPeriodToCome(t *testing.T) {
	c := condition(func(c *inspect.Condition) {
		next := c.Periods[0]
		next.Partitions, next.FromMS = 64, noon.Add(36*time.Hour).UnixMilli()
		c.Periods = append(c.Periods, next)
	})
	require.Contains(t, checkPeriods(c, StoreOptions{Now: noon}).What,
		"64 partitions from 2026-05-03T00:00:00Z on, slots of")
}

func TestDirectory(t *testing.T) {
	for _, c := range []struct {
		free, total int64
		level       Level
		what        string
	}{
		{100 << 30, 200 << 30, OK, "data uses 1.0 GiB; 100.0 GiB of 200.0 GiB free"},
		{500 << 20, 200 << 30, Error, "500.0 MiB"},
		{3 << 30, 20 << 30, Warning, "3.0 GiB of 20.0 GiB"},
		{50 << 30, 2 << 40, Warning, "of 2.0 TiB"},
		{0, 0, OK, "can't be determined"},
	} {
		got := CheckDirectory(DirectoryFacts{Path: "data", Bytes: 1 << 30, Free: c.free, Total: c.total})
		require.Equal(t, c.level, got.Level, got.What)
		require.Contains(t, got.What, c.what)
	}
	_, err := ReadDirectory(t.TempDir())
	require.NoError(t, err)
	free, total := FreeSpace(t.TempDir())
	require.True(t, 0 <= free && free <= total, "%d of %d", free, total)
	require.Equal(t, OK, LevelOf(FreeSpace(t.TempDir()+"/none")), "it isn't known")
	require.Equal(t, "3.0 KiB on disk: samples 2.0 KiB, names, seal records and settings 768 B, log 256 B",
		SpaceFinding(map[string]int64{"raw": 2048, "catalog": 512, "sealed": 256, "log": 256, "free": 0}).What)
	_, err = ReadDirectory(t.TempDir() + "/none")
	require.Error(t, err)
}
