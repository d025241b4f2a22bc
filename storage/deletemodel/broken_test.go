package deletemodel

import (
	"slices"
	"strings"
	"testing"

	"github.com/cassia-db/cassia/storage/soak"
)

// mostUntilCaught is the max number of random histories that are played without a rule until one fails.
const mostUntilCaught = 10_000

type withoutRule struct {
	rule rule
	name string
}

// untilCaught plays random histories without the rule until one fails. It returns the number of histories and the
// failure.
func untilCaught(of rule, first uint64) (histories int, failure string) {
	broken := map[rule]bool{of: true}
	for i := range mostUntilCaught {
		if failure, _ := play(variant{i%4 != 3}, broken, seeded(first+uint64(i)), nil); failure != "" {
			return i + 1, failure
		}
	}
	return mostUntilCaught, ""
}

// TestBrokenRules removes one rule at a time, and checks that a random history fails without it.
func TestBrokenRules(t *testing.T) {
	first := soak.FirstSeed(t)
	for _, x := range slices.Concat(rulesOfToday, readerRules) {
		t.Run(strings.ReplaceAll(x.name, " ", "_"), func(t *testing.T) {
			n, failure := untilCaught(x.rule, first)
			if failure == "" {
				t.Fatalf("%d histories found nothing", n)
			}
			t.Logf("| %s | %d | %s |", x.name, n, failure)
		})
	}
}
