package labelorder

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/soak"
)

type numbered struct {
	labels.Labels
	n int
}

func requireSorted(t testing.TB, list []numbered) {
	want := slices.Clone(list)
	slices.SortStableFunc(want, func(a, b numbered) int { return labels.Compare(a.Labels, b.Labels) })
	Sort(list, func(e numbered) labels.Labels { return e.Labels })
	for i := range want {
		require.Equal(t, want[i], list[i])
	}
}

// randomLabels returns labels with long common prefixes. Some names and values are prefixes of others, long, or contain
// zero bytes.
func randomLabels(rng *rand.Rand) labels.Labels {
	texts := []string{
		"a", "aa", "a\x00", "a\x00\x00b", "a\x01", "b", "host", "host-1", "host-12", "host-123456789.example.org",
		strings.Repeat("long", 70), "\x00", "\xff", "ä",
	}
	b := labels.NewScratchBuilder(4)
	for range rng.IntN(4) {
		b.Add(texts[rng.IntN(len(texts))], texts[rng.IntN(len(texts))])
	}
	b.Sort()
	return b.Labels()
}

// TestSort compares Sort with a sort by labels.Compare.
func TestSort(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(soak.Seed(t), 1))
	for range 30 {
		list := make([]numbered, rng.IntN(4*maxSome))
		for i := range list {
			list[i] = numbered{randomLabels(rng), i}
		}
		requireSorted(t, list)
		requireSorted(t, list) // The list is sorted already.
	}
}

// TestSortOfMany checks the order of more elements than are loaded at once. Most of the elements have a long common
// prefix.
func TestSortOfMany(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(soak.Seed(t), 2))
	list := make([]numbered, 3*maxLoaded)
	for i := range list {
		host := "host-of-many-series.example.org"
		switch rng.IntN(2000) {
		case 0:
			host = "host"
		case 1:
			host = "a\x00"
		}
		list[i] = numbered{labels.FromStrings("host", host, "id", fmt.Sprint(rng.IntN(2*len(list)))), i}
	}
	requireSorted(t, list)
}

func TestSortOfEqualLabels(t *testing.T) {
	t.Parallel()
	list := make([]numbered, 3*maxLoaded)
	for i := range list {
		list[i] = numbered{labels.FromStrings("a", fmt.Sprint(i%2), "b", "a value of more than eight bytes"), i}
	}
	requireSorted(t, list)
}

func FuzzSort(f *testing.F) {
	f.Add([]byte("a=b c=d\na=b\na\x00=b\n\na=b c=e"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var list []numbered
		for len(list) <= maxSome {
			for line := range slices.Chunk(append(text, '.'), 5) {
				list = append(list, numbered{
					labels.FromStrings("n"+string(line[:len(line)/2]), string(line[len(line)/2:]), "z", string(line)),
					len(list),
				})
			}
		}
		requireSorted(t, list)
	})
}

// BenchmarkSort sorts labels similar to those of Kubernetes pods, with this package and with pairwise comparisons.
func BenchmarkSort(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000, 240_000} {
		all := make([]labels.Labels, n)
		for i := range all {
			all[i] = labels.FromStrings(labels.MetricName, "requests_total",
				"host", fmt.Sprintf("host-%d.example.org", i%200), "id", fmt.Sprintf("%016x", i*7919), "job", "pods")
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, k int) { all[i], all[k] = all[k], all[i] })
		list := make([]labels.Labels, n)
		b.Run(fmt.Sprintf("%d/here", n), func(b *testing.B) {
			for b.Loop() {
				copy(list, all)
				Sort(list, func(l labels.Labels) labels.Labels { return l })
			}
		})
		b.Run(fmt.Sprintf("%d/compare", n), func(b *testing.B) {
			for b.Loop() {
				copy(list, all)
				slices.SortFunc(list, labels.Compare)
			}
		})
	}
}
