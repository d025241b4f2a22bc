package deletemodel

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/cassia-db/cassia/storage/soak"
)

// maxShortening is the max number of histories that are played to shorten a failing history.
const maxShortening = 20_000

// failWith shortens a failing history, prints it, and fails the test.
func failWith(t *testing.T, v variant, broken map[rule]bool, failure string, groups [][]uint8) {
	t.Helper()
	kind, _, _ := strings.Cut(failure, ":")
	groups = shorten(groups, maxShortening, func(groups [][]uint8) bool {
		f, _ := play(v, broken, choices{recorded: groups}, nil)
		return strings.HasPrefix(f, kind)
	})
	var lines []string
	failure, _ = play(v, broken, choices{recorded: groups}, func(line string) { lines = append(lines, line) })
	t.Fatalf("%s\n%s\nchoices: %v", failure, strings.Join(lines, "\n"), groups)
}

// TestHistories plays random histories of the current protocol, with multiple processes and with one process.
// CASSIA_SOAK=15 plays 300,000 histories.
func TestHistories(t *testing.T) {
	playDrawn(t, soak.Amount(t, soak.Fewer(2000), 10_000), variant{shared: true}, variant{})
}

// playDrawn plays n random histories of each variant.
func playDrawn(t *testing.T, n int, variants ...variant) {
	t.Helper()
	seed := soak.Seed(t)
	// Histories need little memory, so the garbage collector runs less often. With the default setting it would take a
	// quarter of the CPU time.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	for i := range uint64(n) {
		for _, v := range variants {
			if failure, list := play(v, nil, seeded(seed+i), nil); failure != "" {
				t.Logf("seed %d", seed+i)
				failWith(t, v, nil, failure, list)
			}
		}
	}
}

func BenchmarkHistory(b *testing.B) {
	for i := range b.N {
		play(variant{shared: true}, nil, seeded(uint64(i)), nil)
	}
}
