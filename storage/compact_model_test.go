package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// withCompactions adds compactions to a history of pages, behind some of its lines.
func withCompactions(h history, seed uint64) (out history) {
	rng := rand.New(rand.NewPCG(seed, 21))
	for i, line := range h {
		out = append(out, line)
		if i == 0 || rng.IntN(3) > 0 {
			continue
		}
		switch rng.IntN(9) {
		case 0, 1:
			out = append(out, fmt.Sprintf("cutcompact %d", 1+rng.IntN(300)))
		case 3, 4:
			out = append(out, fmt.Sprintf("amidcompact %s", strings.Join(drawSome(rng, "workoff", "clean", "seal", "expire", "again", "end"), " ")))
		case 5:
			out = append(out, fmt.Sprintf("cutcompact %d", 1+rng.IntN(300)), "again")
		case 2:
			words := strings.Fields(line)
			if slices.Contains([]string{"write", "import", "beside"}, words[0]) {
				out = append(out, "besidecompact "+strings.Join(words[1:4], " "))
				continue
			}
			fallthrough
		default:
			out = append(out, "compact")
		}
	}
	return out
}

// drawSome draws one or more of a list, in any order.
func drawSome(rng *rand.Rand, of ...string) []string {
	rng.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:1+rng.IntN(len(of))]
}

// TestCompactedPagesAgainstModel carries out seeded histories of pages with compactions between.
func TestCompactedPagesAgainstModel(t *testing.T) {
	t.Parallel()
	for kind, seeds := range pagesSeeds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range protocolSeeds(t, seeds) {
				h := withCompactions(makePagesHistory(seed, kind), seed)
				if problem := runHistory(h); problem != "" {
					h = shrinkHistory(h)
					t.Fatalf("seed %d: %s\n%s\nas a shorter history: %s", seed, problem, h, runHistory(h))
				}
			}
		})
	}
}

// exact returns the answers to some queries, the same ones for each seed.
func (r *pagesRun) exact(seed uint64) (all []map[string]string) {
	rng := rand.New(rand.NewPCG(seed, 22))
	now := r.opts.Now().UnixMilli()
	for _, res := range []rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour} {
		queries := []query.Query{wholeQuery("t", res)}
		for range 3 {
			queries = append(queries, partQuery(rng, "t", res, now-75*format.DayMS, now))
		}
		for _, q := range queries {
			a, err := answerTo(context.Background(), r.Store, q)
			if err != nil {
				r.fail("asking: %v", err)
			}
			all = append(all, a)
		}
	}
	return all
}

// unchanged fails if answers differ from those that exact gave before.
func (r *pagesRun) unchanged(before []map[string]string, seed uint64, when string) {
	for i, after := range r.exact(seed) {
		if c := changed(before[i], after); c != "" {
			r.fail("%s: the answer to query %d is another: %s", when, i, c)
		}
	}
}

func (r *pagesRun) compact() {
	seed := uint64(r.opts.Now().UnixMilli())
	before := r.exact(seed)
	ctx := context.Background()
	if _, err := r.compactAll(ctx, func() {}); !r.tolerate("compacting", err) {
		return
	}
	r.unchanged(before, seed, "compacted")
	if list, err := oldestFirst(r.Compactable(ctx, func() {})); err != nil || len(list) > 0 {
		r.fail("compacted, %d windows may be compacted: %v", len(list), err)
	}
}

// cutCompact ends a compaction at a step of the engine's.
func (r *pagesRun) cutCompact(step int) {
	seed := uint64(step)
	before := r.exact(seed)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.eng.cutAt(step, cancel)
	_, err := r.compactAll(ctx, func() {})
	r.eng.cutAt(0, cancel)
	if err != nil && !errors.Is(err, context.Canceled) {
		r.tolerate("compacting until it is cancelled", err)
	}
	r.unchanged(before, seed, "compacted in part")
}

// compactBeside compacts while samples are written and sealed, and queries are answered and ended.
func (r *pagesRun) compactBeside(s *sentSamples) {
	ctx, cancel := context.WithCancel(context.Background())
	var work, queries sync.WaitGroup
	var facts []*pagesFact
	work.Go(func() {
		facts, _ = r.write(s)
		r.tolerate("sealing", r.SealAll(context.Background()))
	})
	work.Go(func() {
		for range 2 {
			_, err := r.compactAll(context.Background(), func() {})
			r.tolerate("compacting", err)
		}
	})
	queries.Go(func() {
		for ctx.Err() == nil {
			a := r.answer(context.Background(), rollup.Raw)
			if a != nil {
				if problem := r.model.judge(a); problem != "" {
					r.fail("meanwhile: %s", problem)
				}
			}
			r.endedQuery()
			r.exact(1)
		}
	})
	work.Wait()
	cancel()
	queries.Wait()
	r.acked(facts, false)
}

// compactAmid compacts while other work is done on the same windows, and queries are answered.
func (r *pagesRun) compactAmid(work []string) {
	var all, queries sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	asking, asked := context.WithCancel(context.Background())
	all.Go(func() {
		if _, err := r.compactAll(ctx, func() {}); !errors.Is(err, context.Canceled) {
			r.tolerate("compacting", err)
		}
	})
	all.Go(func() {
		for _, what := range work {
			var err error
			switch ctx := context.Background(); what {
			case "workoff":
				err = r.WorkOffDeletes(ctx, "t")
			case "clean":
				err = r.CleanTombstones(ctx, "t")
			case "seal":
				err = r.SealAll(ctx)
			case "expire":
				_, err = r.Expire(ctx)
			case "again":
				_, err = r.compactAll(ctx, func() {})
			case "end":
				end()
			}
			r.tolerate(what+" while rollups are compacted", err)
		}
	})
	queries.Go(func() {
		for asking.Err() == nil {
			if a := r.answer(context.Background(), rollup.Raw); a != nil {
				if problem := r.model.judge(a); problem != "" {
					r.fail("meanwhile: %s", problem)
				}
			}
			r.exact(1)
		}
	})
	all.Wait()
	end()
	asked()
	queries.Wait()
	r.expire() // For the model.
}

// TestCompactedPagesAnswerAsOthers carries out histories twice, with compactions and without: the last answers are the
// same. What a clock that jumps has samples refused depends on queries, so none does.
func TestCompactedPagesAnswerAsOthers(t *testing.T) {
	t.Parallel()
	without := func(h history, words ...string) history {
		return slices.DeleteFunc(slices.Clone(h), func(line string) bool { return slices.Contains(words, strings.Fields(line)[0]) })
	}
	for seed := range protocolSeeds(t, 10) {
		all := append(without(withCompactions(makePagesHistory(1000+seed, "memory"), seed), "skew", "beside", "besidecompact", "amidcompact"), "compact")
		var answers [2][]map[string]string
		for i, h := range []history{without(all, "compact", "cutcompact"), all} {
			r, problem := newPagesRun(h[0])
			require.Empty(t, problem)
			r.start()
			for _, line := range h[1:] {
				r.bounds() // Queries beside a line are judged by them.
				r.line(strings.Fields(line))
			}
			answers[i] = r.exact(seed)
			r.stop()
			require.Empty(t, r.problem)
		}
		for i := range answers[0] {
			require.Empty(t, changed(answers[0][i], answers[1][i]), "seed %d, query %d\n%s", seed, i, all)
		}
	}
}
