package pebble

import (
	"context"
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
	"github.com/cassia-db/cassia/storage/soak"
)

var historyFile = flag.String(
	"history", "", "a file with a history to run again, as TestMetamorphic prints it when it fails",
)

// powerSubject returns a subject whose engines are on a file system that can lose power.
func powerSubject(opts Options) enginetest.Subject {
	disks := map[engine.Engine]*CrashableFS{}
	openOn := func(t testing.TB, disk *CrashableFS) engine.Engine {
		o := opts
		o.FS = disk
		e, err := Open("data", o)
		require.NoError(t, err)
		disks[e] = disk
		return e
	}
	return enginetest.Subject{
		Open: func(t testing.TB) engine.Engine { return openOn(t, NewCrashableFS()) },
		Reopen: func(t testing.TB, e engine.Engine) engine.Engine {
			require.NoError(t, e.Close())
			return openOn(t, disks[e])
		},
		Crash: func(t testing.TB, e engine.Engine, rng *rand.Rand) engine.Engine {
			left := disks[e].Crash(rng.IntN(101), rng)
			require.NoError(t, e.Close())
			return openOn(t, left)
		},
		Compact: func(t testing.TB, e engine.Engine) {
			require.NoError(t, e.(*Engine).CompactAll(context.Background()))
		},
	}
}

// TestMetamorphic runs random histories with crashes on Pebble and on the suite's simple model, and requires that both
// return the same results.
func TestMetamorphic(t *testing.T) {
	t.Parallel()
	opts := smallOptions()
	opts.StageDelay = time.Millisecond
	if *historyFile != "" {
		enginetest.Replay(t, powerSubject(opts), *historyFile)
		return
	}
	first := soak.FirstSeed(t)
	for i := range soak.Histories(t, 12) {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			enginetest.Metamorphic(t, powerSubject(opts), seed, 3000)
		})
	}
}
