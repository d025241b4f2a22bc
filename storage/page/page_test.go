package page

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// kinds are all kinds.
var kinds = []Kind{Labels, Chunks, Rollups}

// usualValues returns values of a kind, of n short-lived series.
func usualValues(k Kind, n int, seed uint64) [][]byte {
	c := churnOf(targets(n, seed), seed, seed%2 == 0)
	switch k {
	case Labels:
		return c.labels
	case Chunks:
		return c.chunks
	default:
		return slices.Concat(c.r5m[n/2:], c.r1h[:n/2])
	}
}

// requireRoundTrip requires that the page of values returns its head and values, and returns the page.
func requireRoundTrip(t testing.TB, h Head, values [][]byte) []byte {
	page := Append([]byte("before"), h, values)
	require.Equal(t, "before", string(page[:6]))
	page = page[6:]
	require.Equal(t, page, Append(nil, h, values), "the same values give another page")
	p, err := Parse(page)
	require.NoError(t, err)
	require.Equal(t, h, p.Head())
	require.Equal(t, len(values), p.Len())
	for _, i := range rand.New(rand.NewPCG(uint64(len(values)), 0)).Perm(len(values)) {
		got, err := p.AppendValue([]byte("before"), i)
		require.NoError(t, err)
		if !bytes.Equal(values[i], got[6:]) || string(got[:6]) != "before" {
			require.Equal(t, values[i], got[6:], "entry %d", i)
		}
	}
	return page
}

// TestRoundTrip checks that pages of usual and unusual values, of values of other kinds, and of mixtures return their
// values.
func TestRoundTrip(t *testing.T) {
	for _, k := range kinds {
		for seed := range uint64(6) {
			var all [][]byte
			for _, other := range kinds {
				odd := oddValues(t, other, seed)
				requireRoundTrip(t, headOf(k), odd)
				all = append(append(all, odd...), usualValues(other, 30, seed)...)
			}
			rand.New(rand.NewPCG(seed, 5)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			requireRoundTrip(t, headOf(k), all[:min(len(all), MaxEntries)])
			for _, n := range []int{1, 2, 3, 15, 16, 17, 200, MaxEntries} {
				requireRoundTrip(t, headOf(k), usualValues(k, n, seed))
			}
		}
	}
}

// TestUsualValuesAreCut checks that all usual values are cut. Uncut values would be returned as well, but take more
// space.
func TestUsualValuesAreCut(t *testing.T) {
	for _, k := range kinds {
		for seed := range uint64(6) {
			p, err := Parse(Append(nil, headOf(k), usualValues(k, 100, seed)))
			require.NoError(t, err)
			for i := range p.Len() {
				require.Zero(t, p.column(0).at(i), "entry %d of kind %d", i, k)
			}
		}
	}
}

func TestPositions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	values := usualValues(Chunks, MaxEntries, 1)
	for n := 1; n < MaxEntries; n++ {
		for _, least := range []int{0, r.IntN(MaxEntries - n + 1)} {
			span := n + r.IntN(MaxEntries-least-n+1)
			at := make([]byte, 0, n)
			for _, p := range r.Perm(span)[:n] {
				at = append(at, byte(least+p))
			}
			slices.Sort(at)
			h := headOf(Chunks)
			if int(at[n-1]) != n-1 {
				h.At = at
			}
			requireRoundTrip(t, h, values[:n])
		}
	}
	h := headOf(Chunks)
	h.At = []byte{0, 1, 2}
	p, err := Parse(Append(nil, h, values[:3]))
	require.NoError(t, err)
	require.Nil(t, p.Head().At, "all positions are nil, however they are given")
}

func TestAppendPanicsOnErrorsOfTheCaller(t *testing.T) {
	one, two := [][]byte{{1}}, [][]byte{{1}, {2}}
	id := "0123456789abcdef"
	for name, f := range map[string]func(){
		"no entry":             func() { Append(nil, Head{}, nil) },
		"too many entries":     func() { Append(nil, Head{}, make([][]byte, MaxEntries+1)) },
		"unknown kind":         func() { Append(nil, Head{Kind: kindsEnd, Labels: id}, one) },
		"labels of labels":     func() { Append(nil, Head{Kind: Labels, Labels: id}, one) },
		"no labels":            func() { Append(nil, Head{Kind: Chunks}, one) },
		"short labels":         func() { Append(nil, Head{Kind: Chunks, Labels: id[1:]}, one) },
		"too few positions":    func() { Append(nil, Head{At: []byte{1}}, two) },
		"unordered positions":  func() { Append(nil, Head{At: []byte{2, 1}}, two) },
		"repeated positions":   func() { Append(nil, Head{At: []byte{2, 2}}, two) },
		"positions of nothing": func() { Append(nil, Head{At: []byte{}}, one) },
	} {
		require.Panics(t, f, name)
	}
}

// TestSmaller checks that pages of series of one rollout take much less space than their rows, after the engine's
// compression.
func TestSmaller(t *testing.T) {
	for name, of := range benchValues(true) {
		var pages [][]byte
		for _, values := range of {
			pages = append(pages, Append(nil, headOf(kindOf(name)), values))
		}
		require.Less(t, 2*compressed(t, pages), compressed(t, asRows(name, of)), name)
	}
}

// TestConcurrentReaders checks, with -race, that multiple goroutines can read a page.
func TestConcurrentReaders(t *testing.T) {
	values := usualValues(Rollups, 100, 1)
	p, err := Parse(Append(nil, headOf(Rollups), values))
	require.NoError(t, err)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for i, v := range values {
				got, err := p.AppendValue(nil, i)
				if err != nil || !bytes.Equal(v, got) {
					t.Errorf("entry %d: %v", i, err)
				}
			}
		})
	}
	readers.Wait()
}

// TestMemoryOfPages checks that the reported memory of a page is at least the size of its unpacked columns.
func TestMemoryOfPages(t *testing.T) {
	for _, k := range kinds {
		for _, n := range []int{1, 20, MaxEntries} {
			b := Append(nil, headOf(k), usualValues(k, n, 1))
			p, err := Parse(b)
			require.NoError(t, err)
			least := len(b)
			for i := range p.numbers {
				c := &p.numbers[i].numbers
				least += 8*len(c.wide) + 8*len(c.dictionary)
			}
			require.GreaterOrEqual(t, p.MemoryBytes(), least)
		}
	}
	rollups, err := Parse(Append(nil, headOf(Rollups), usualValues(Rollups, MaxEntries, 1)))
	require.NoError(t, err)
	require.Greater(t, rollups.MemoryBytes(), 2*rollups.bytes, "many columns are unpacked to eight bytes a number")
}
