package deletemodel

import (
	"strings"
	"testing"

	"github.com/cassia-db/cassia/storage/soak"
)

// maxShortening is how many histories are played to shorten one.
const maxShortening = 2000

// failWith shortens a failing history, prints it, and ends the test.
func failWith(t *testing.T, shared bool, broken map[rule]bool, failure string, list []uint8) {
	t.Helper()
	kind, _, _ := strings.Cut(failure, ":")
	plays := 0
	list = shorten(list, func(list []uint8) bool {
		if plays++; plays > maxShortening {
			return false
		}
		f, _ := play(shared, broken, choices{recorded: list}, nil)
		return strings.HasPrefix(f, kind)
	})
	var lines []string
	failure, _ = play(shared, broken, choices{recorded: list}, func(line string) { lines = append(lines, line) })
	t.Fatalf("%s\n%s\nchoices: %v", failure, strings.Join(lines, "\n"), list)
}

// TestHistories plays drawn histories of several processes, and of one.
func TestHistories(t *testing.T) {
	seed, n := soak.Seed(t), soak.Amount(t, 2000, 150_000)
	for i := range uint64(n) {
		for _, shared := range []bool{true, false} {
			if failure, list := play(shared, nil, seeded(seed+i), nil); failure != "" {
				t.Logf("seed %d", seed+i)
				failWith(t, shared, nil, failure, list)
			}
		}
	}
}

func BenchmarkHistory(b *testing.B) {
	for i := range b.N {
		play(true, nil, seeded(uint64(i)), nil)
	}
}
