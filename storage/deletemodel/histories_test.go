package deletemodel

import (
	"strings"
	"testing"

	"github.com/cassia-db/cassia/storage/soak"
)

// maxShortening is the max number of histories that are played to shorten one.
const maxShortening = 2000

// failWith shortens a failing history, prints it, and fails the test.
func failWith(t *testing.T, v variant, broken map[rule]bool, failure string, list []uint8) {
	t.Helper()
	kind, _, _ := strings.Cut(failure, ":")
	plays := 0
	list = shorten(list, func(list []uint8) bool {
		if plays++; plays > maxShortening {
			return false
		}
		f, _ := play(v, broken, choices{recorded: list}, nil)
		return strings.HasPrefix(f, kind)
	})
	var lines []string
	failure, _ = play(v, broken, choices{recorded: list}, func(line string) { lines = append(lines, line) })
	t.Fatalf("%s\n%s\nchoices: %v", failure, strings.Join(lines, "\n"), list)
}

// TestHistories plays random histories of the current protocol, with multiple processes and with one.
func TestHistories(t *testing.T) {
	playDrawn(t, soak.Amount(t, 400, 150_000), variant{shared: true}, variant{})
}

// playDrawn plays n random histories of each variant.
func playDrawn(t *testing.T, n int, variants ...variant) {
	t.Helper()
	seed := soak.First(t)
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
