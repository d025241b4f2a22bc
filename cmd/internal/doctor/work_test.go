package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/storage/membership"
)

// TestWork checks the findings about the work of a server.
func TestWork(t *testing.T) {
	const damage = "storage: sealing: engine: stored data is damaged: file 000005.sst: block 7/8: mismatch"
	waits := func(d time.Duration) membership.ImportStatus {
		return membership.ImportStatus{Tenant: "a", WaitsFor: membership.WaitsForSeal, WaitsSince: noon.Add(-d)}
	}
	for _, c := range []struct {
		name   string
		status downsample.Status
		level  Level
		what   string
		do     string
	}{
		{name: "healthy", status: downsample.Status{Partitions: make([]downsample.PartitionStatus, 4)}},
		{name: "a former error", status: downsample.Status{
			Partitions: []downsample.PartitionStatus{{LastError: damage}},
		}},
		{name: "an error that may pass", status: downsample.Status{
			Partitions: []downsample.PartitionStatus{{FailedRounds: 2, LastError: "no answer"}},
			Tasks:      []downsample.TaskStatus{{Task: "expiring", Failures: 2, LastError: "no answer"}},
		}},
		{name: "an error that stays", status: downsample.Status{Partitions: []downsample.PartitionStatus{
			{FailedRounds: 7, LastError: "the disk is full", Do: "free space"},
		}}, level: Error, what: "sealing fails in 1 partition (0): the disk is full", do: "a full or failing disk"},
		{name: "damage", status: downsample.Status{Partitions: []downsample.PartitionStatus{
			{FailedRounds: 1, LastError: damage}, {Partition: 1}, {Partition: 2, FailedRounds: 1, LastError: damage},
		}}, level: Error,
			what: "sealing fails in 2 partitions (0, 2): sealing: stored data is damaged: file 000005.sst",
			do:   "cassia restore --damaged --from=BACKUPS --storage.path=data"},
		{name: "a damaged window", status: downsample.Status{Rollups: downsample.RollupStatus{
			First: []downsample.WindowStatus{{Failures: 1, LastError: damage}, {Failures: 1, LastError: damage}},
		}}, level: Error, what: "computing rollups fails, 1 time so far: ", do: "cassia check --storage.path=data"},
		{name: "a failing task", status: downsample.Status{
			Tasks: []downsample.TaskStatus{{Task: "expiring", Failures: 9, LastError: "no answer"}},
		}, level: Warning, what: "expiring fails, 9 times so far: no answer", do: "fix the cause"},
		{name: "halted", status: downsample.Status{Halted: "the head could not be rebuilt"}, level: Error,
			what: "nothing is sealed: the head could not be rebuilt"},
		{name: "a short wait", status: downsample.Status{Imports: []membership.ImportStatus{waits(9 * time.Minute)}}},
		{name: "an import that runs", status: downsample.Status{
			Imports: []membership.ImportStatus{{Tenant: "a", Since: noon.Add(-time.Hour)}},
		}},
		{name: "a long wait", status: downsample.Status{Imports: []membership.ImportStatus{waits(11 * time.Minute)}},
			level: Warning, what: `an import for tenant "a" has waited 11 min for the seal of one of its partitions`,
			do: "/-/downsample"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := CheckWork(&c.status, StoreOptions{Flags: "--storage.path=data", Now: noon})
			if c.level == OK {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.level, found[0].Level)
			require.Contains(t, found[0].What, c.what)
			require.Contains(t, found[0].Do, c.do)
			require.NotEmpty(t, found[0].Why)
		})
	}
}
