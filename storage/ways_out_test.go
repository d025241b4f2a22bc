package storage

import "testing"

// TestWaysOut runs seeded histories of everything that hides, drops, deletes, cleans, expires and returns rows, and
// compares every answer with a plain model. A failing history is shortened and printed. To replay it, put it in a file
// and pass -protocol.file. cmd/tools/broken breaks rules of the code and reports the tests that detect it.
// testdata/README.md lists the operations of each kind of history, and the defects that were found, with their tests.
func TestWaysOut(t *testing.T) {
	t.Parallel()
	for kind, seeds := range map[string]int{"memory": 60, "pebble": 10} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range protocolSeeds(t, seeds) {
				runWaysOut(t, seed, kind)
			}
		})
	}
}

// TestWaysOutExpiring runs histories of two processes on an engine that expires rows. It runs the first seeds, and the
// seeds whose histories have failed in the past.
func TestWaysOutExpiring(t *testing.T) {
	t.Parallel()
	for seed := range protocolSeeds(t, 8) {
		runWaysOut(t, seed, "expiring")
	}
	if testing.Short() {
		return
	}
	for _, seed := range []uint64{
		28, 33, 38, 40, 53, 64, 68, 101, 104, 110, 114, 778, 5004, 20086, 20156, 20170, 20309, 20388, 30178, 30179,
	} {
		runWaysOut(t, seed, "expiring")
	}
}

func runWaysOut(t *testing.T, seed uint64, kind string) {
	h := makeWaysHistory(seed, kind)
	if problem := runHistory(h); problem != "" {
		h = shrinkHistory(h)
		t.Fatalf("seed %d: %s\n%s\nas a shorter history: %s", seed, problem, h, runHistory(h))
	}
}
