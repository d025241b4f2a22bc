package cassandra

import (
	"flag"
	"strconv"
	"testing"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
	"github.com/cassia-db/cassia/storage/soak"
)

var historyFile = flag.String(
	"history", "", "a file with a history to run again, as TestMetamorphic prints it when it fails",
)

// TestMetamorphic runs random histories on Cassandra and on the suite's simple model, and compares the results. The
// histories run concurrently, because a write mostly waits for the commit log.
func TestMetamorphic(t *testing.T) {
	testHosts(t)
	t.Parallel()
	subject := enginetest.Subject{
		Open:   func(t testing.TB) engine.Engine { return openApart(t) },
		Reopen: reopen,
		NoDrop: true, NoClear: true,
	}
	if *historyFile != "" {
		enginetest.Replay(t, subject, *historyFile)
		return
	}
	first := soak.FirstSeed(t)
	for i := range soak.Times(t, 4) {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			enginetest.Metamorphic(t, subject, seed, 1500)
		})
	}
}
