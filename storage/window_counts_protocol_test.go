package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// withFaultyCounts adds counting of series to a history, most of it with faults, crashes, or writes beside, and time
// that passes before.
func withFaultyCounts(h history, seed uint64) (out history) {
	rng := rand.New(rand.NewPCG(seed, 29))
	for i, line := range h {
		out = append(out, line)
		kind, _, _ := strings.Cut(line, " ")
		if i == 0 || kind == "fault" || kind == "at" || kind == "with" || rng.IntN(3) > 0 { // The next line goes with it.
			continue
		}
		switch rng.IntN(4) {
		case 0:
			out = append(out, "sealall", fmt.Sprintf("jump %dh", 12*(1+rng.IntN(6))))
		case 1:
			out = append(out, "sealall", "jump 26h", fmt.Sprintf("write ann up/%c@0s=3 load/a@-30h=1", 'a'+rune(rng.IntN(3))), "sealall", "jump 26h")
		}
		switch rng.IntN(6) {
		case 0, 1:
			out = append(out, fmt.Sprintf("fault die %s %d", []string{"before", "after"}[rng.IntN(2)], 1+rng.IntN(4)))
		case 2:
			table := []string{"catalog", "raw", "sealed", "shards"}[rng.IntN(4)]
			out = append(out, fmt.Sprintf("fault %s %s %d", []string{"fail", "lose", "scan", "withhold"}[rng.IntN(4)], table, 1+rng.IntN(5)))
		case 3:
			words := []string{"write ann up/a@0s=3", "write ann load/b@-26h=3", "query ann", "letgo", "sealall", "expire"}
			out = append(out, fmt.Sprintf("at %d %s", 1+rng.IntN(30), words[rng.IntN(len(words))]))
		}
		out = append(out, "count")
		switch rng.IntN(6) {
		case 0:
			out = append(out, fmt.Sprintf("crash %d", 50*rng.IntN(3)), "count")
		case 1:
			out = append(out, "restart", "count")
		case 2:
			out = append(out, "count")
		}
	}
	return append(out, "sealall", "count")
}

// TestCountedProtocol carries out histories in which counting series goes wrong.
func TestCountedProtocol(t *testing.T) {
	t.Parallel()
	for kind, seeds := range map[string]int{"memory": 80, "pebble": 8} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range protocolSeeds(t, seeds) {
				h := withFaultyCounts(makeHistory(seed, kind), seed)
				if problem := runHistory(h); problem != "" {
					h = shrinkHistory(h)
					t.Fatalf("seed %d: %s\n%s\nas a shorter history: %s", seed, problem, h, runHistory(h))
				}
			}
		})
	}
}

// count counts the windows that are over. Unless anything goes wrong or happens beside, all counts are those of the
// labels, then and before.
func (r *protocolRun) count(ctx context.Context) {
	alone := len(r.faults) == 0 && len(r.hooks) == 0
	if alone {
		r.compareCounts(ctx)
	}
	_, err := r.store.countWindows(ctx)
	if r.tolerate("counting series", err); err != nil || !alone {
		return
	}
	r.compareCounts(ctx)
}

func (r *protocolRun) compareCounts(ctx context.Context) {
	for i, tenant := range []string{"ann", "bob"} {
		_, problem, err := r.store.wrongCounts(ctx, tenant, rand.New(rand.NewPCG(uint64(i), uint64(r.now.Load()))))
		r.tolerate("asking for counts", err)
		if err == nil && problem != "" {
			r.fail("counts of %s: %s", tenant, problem)
		}
	}
}
