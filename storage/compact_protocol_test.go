package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cassia-db/cassia/storage/rollup"
)

// withFaultyCompactions adds compactions to a history, most of them with faults, crashes, or writes and queries beside,
// and time that passes before.
func withFaultyCompactions(h history, seed uint64) (out history) {
	rng := rand.New(rand.NewPCG(seed, 23))
	quiet := true // no line before is about the next one
	for i, line := range h {
		out = append(out, line)
		kind, _, _ := strings.Cut(line, " ")
		if quiet = i > 0 && kind != "fault" && kind != "at" && kind != "with"; !quiet || rng.IntN(4) > 0 {
			continue
		}
		if rng.IntN(2) == 0 {
			out = append(out, "sealall", fmt.Sprintf("jump %dh", 24*(3+rng.IntN(12))))
		}
		switch rng.IntN(6) {
		case 0, 1:
			out = append(out, fmt.Sprintf("fault die %s %d", []string{"before", "after"}[rng.IntN(2)], 1+rng.IntN(12)))
		case 2:
			table := []string{"r5m", "r1h", "r5m_pages", "r1h_pages"}[rng.IntN(4)]
			out = append(out, fmt.Sprintf("fault %s %s %d", []string{"fail", "lose", "scan"}[rng.IntN(3)], table, 1+rng.IntN(5)))
		case 3:
			words := []string{"write ann up/a@0s=3", "query ann", "query bob", "letgo", "clock 1h"}
			out = append(out, fmt.Sprintf("at %d %s", 1+rng.IntN(30), words[rng.IntN(len(words))]))
		}
		out = append(out, "compact")
		if rng.IntN(4) == 0 {
			out = append(out, fmt.Sprintf("crash %d", 50*rng.IntN(3)), "compact")
		}
	}
	return append(out, "clean ann", "clean bob") // Cut short, it leaves rollups of an hour that those of 5 minutes have been cleaned of.
}

// TestCompactedProtocol carries out histories with compactions that go wrong.
func TestCompactedProtocol(t *testing.T) {
	t.Parallel()
	for kind, seeds := range map[string]int{"memory": 100, "pebble": 15} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range protocolSeeds(t, seeds) {
				h := withFaultyCompactions(makeHistory(seed, kind), seed)
				if problem := runHistory(h); problem != "" {
					h = shrinkHistory(h)
					t.Fatalf("seed %d: %s\n%s\nas a shorter history: %s", seed, problem, h, runHistory(h))
				}
			}
		})
	}
}

// compact compacts all windows that are over. Unless anything goes wrong or happens beside, the answers stay the same.
func (r *protocolRun) compact(ctx context.Context) {
	alone := len(r.faults) == 0 && len(r.hooks) == 0
	var before []map[string]string
	if alone {
		before = r.exact(ctx)
	}
	_, err := r.store.compactAll(ctx, func() {})
	if r.tolerate("compacting", err); err != nil || !alone {
		return
	}
	for i, after := range r.exact(ctx) {
		if c := changed(before[i], after); c != "" {
			r.fail("compacted: the answer to query %d is another: %s", i, c)
		}
	}
	if list, err := oldestFirst(r.store.Compactable(ctx, func() {})); err != nil || len(list) > 0 {
		r.fail("compacted, %d windows may be compacted: %v", len(list), err)
	}
}

func (r *protocolRun) exact(ctx context.Context) (all []map[string]string) {
	for _, tenant := range []string{"ann", "bob"} {
		for res := range rollup.Resolution(resolutions) {
			a, err := answerTo(ctx, r.store, wholeQuery(tenant, res))
			if err != nil {
				r.tolerate("asking", err)
			}
			all = append(all, a)
		}
	}
	return all
}
