package format

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// drawCounts returns random counts with lists of up to n entries.
func drawCounts(rng *rand.Rand, n int) *Counts {
	list := func(name string) (list []NamedCount) {
		for i := range rng.IntN(n + 1) {
			list = append(list, NamedCount{
				fmt.Sprintf("%s_%d%s", name, i, strings.Repeat("x", rng.IntN(9))), 1 + rng.Uint64N(50),
			})
		}
		slices.SortFunc(list, CompareCounts)
		return list
	}
	c := &Counts{Metrics: list("metric")}
	if len(c.Metrics) > 0 && rng.IntN(4) == 0 {
		c.Metrics[0].Name = ""
	}
	slices.SortFunc(c.Metrics, CompareCounts)
	for _, l := range list("label") {
		values := list("value")
		l.Count = uint64(len(values)) + rng.Uint64N(3)
		if l.Count > 0 {
			c.Labels = append(c.Labels, LabelCounts{l, values})
		}
	}
	slices.SortFunc(c.Labels, func(a, b LabelCounts) int { return CompareCounts(a.NamedCount, b.NamedCount) })
	c.Series, c.AllMetrics = rng.Uint64(), uint64(len(c.Metrics))+rng.Uint64N(2)
	c.AllLabels = uint64(len(c.Labels)) + rng.Uint64N(2)
	return c
}

// parseRows parses the result of EncodeCounts.
func parseRows(rows [][]byte) (*Counts, error) {
	h, err := ParseCountsHead(rows[0])
	if err != nil {
		return nil, err
	}
	var body []byte
	for _, row := range rows[1:] {
		if body, err = AppendCountsPart(body, row); err != nil {
			return nil, err
		}
	}
	return ParseCounts(h, body)
}

// TestCountsRoundTrip checks that encoded counts are parsed to the same counts, and that rows with a flipped bit are
// rejected.
func TestCountsRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 5, 40, 200} {
		want := drawCounts(rng, n)
		rows, err := EncodeCounts(want)
		require.NoError(t, err)
		got, err := parseRows(rows)
		require.NoError(t, err)
		require.Equal(t, len(rows)-1, got.Parts())
		got.CountsHead = CountsHead{Series: got.Series, AllMetrics: got.AllMetrics, AllLabels: got.AllLabels}
		require.Equal(t, want, got)
		for i, row := range rows {
			words, err := Describe(engine.Catalog, CountsPartition(1, "t"), engine.Row{
				Clustering: CountsKey(7, i), Value: row,
			})
			require.NoError(t, err)
			require.Contains(t, words, "bytes")
			require.LessOrEqual(t, len(row), 64<<10)
			at, bit := rng.IntN(len(row)), byte(1)<<rng.IntN(8)
			row[at] ^= bit
			_, err = parseRows(rows)
			require.ErrorIs(t, err, errMalformedCounts)
			row[at] ^= bit
			_, err = Describe(engine.Catalog, CountsPartition(1, "t"), engine.Row{
				Clustering: CountsKey(7, i), Value: row[:len(row)-1],
			})
			require.ErrorIs(t, err, errMalformedCounts)
		}
		if n == 0 {
			continue
		}
		others, err := EncodeCounts(drawCounts(rng, n))
		require.NoError(t, err)
		_, err = parseRows(append(rows[:1:1], others[1:]...))
		require.ErrorIs(t, err, ErrCountsMismatch)
	}
	_, err := EncodeCounts(&Counts{Metrics: []NamedCount{{strings.Repeat("x", maxCountsBody), 1}}})
	require.ErrorIs(t, err, engine.ErrTooLarge)
}

func TestCountsKeys(t *testing.T) {
	require.Equal(t, "000000000000001f/0000", CountsKey(31, 0)[0].Text)
	require.Equal(t, "000000000000001f-ffffffffffffffff", CountsChangeKey(31, 1<<64-1)[0].Text)
	for _, key := range []string{
		CountsKey(31, 0)[0].Text, CountsKey(31, MaxCountsParts)[0].Text, CountsChangeKey(31, 5)[0].Text,
	} {
		require.Equal(t, "000000000000001f", CountsState(key))
	}
	require.Less(t, CountsChangeKey(31, 1<<64-1)[0].Text, CountsKey(31, 0)[0].Text)
	require.Empty(t, CountsState("000000000000001f"))
	c := CountsChange{Added: 300, Gone: 1}
	b := AppendCountsChange(nil, c)
	got, err := ParseCountsChange(b)
	require.NoError(t, err)
	require.Equal(t, c, got)
	words, err := Describe(engine.Catalog, CountsPartition(1, "t"), engine.Row{
		Clustering: CountsChangeKey(31, 5), Value: b,
	})
	require.NoError(t, err)
	require.Equal(t, "300 series added, 1 removed", words)
	for i := range b {
		b[i] ^= 4
		_, err := ParseCountsChange(b)
		require.ErrorIs(t, err, errMalformedCounts)
		b[i] ^= 4
	}
}

// FuzzCountsBody parses any bytes as a body. Valid counts must be unchanged after they are encoded and parsed again.
func FuzzCountsBody(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range 4 {
		f.Add(appendCountsBody(nil, drawCounts(rng, 5*n)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := ParseCounts(headOf(body), body)
		if err != nil {
			require.ErrorIs(t, err, errMalformedCounts)
			return
		}
		again := appendCountsBody(nil, c)
		require.LessOrEqual(t, len(again), len(body))
		got, err := ParseCounts(headOf(again), again)
		require.NoError(t, err)
		got.CountsHead = c.CountsHead
		require.Equal(t, c, got)
	})
}

// headOf returns a head that matches a body.
func headOf(body []byte) CountsHead {
	return CountsHead{AllMetrics: 1 << 40, AllLabels: 1 << 40, size: len(body), sum: bodySum(body)}
}

// FuzzCountsRow parses any bytes as rows of counts. A valid CountsChange must be unchanged after it is encoded and
// parsed again.
func FuzzCountsRow(f *testing.F) {
	rows, err := EncodeCounts(drawCounts(rand.New(rand.NewPCG(5, 6)), 9))
	require.NoError(f, err)
	for _, row := range append(rows, AppendCountsChange(nil, CountsChange{1, 2})) {
		f.Add(row)
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		if h, err := ParseCountsHead(row); err == nil {
			require.LessOrEqual(t, h.Parts(), MaxCountsParts)
		}
		if c, err := ParseCountsChange(row); err == nil {
			got, err := ParseCountsChange(AppendCountsChange(nil, c))
			require.NoError(t, err)
			require.Equal(t, c, got)
		}
		_, _ = AppendCountsPart(nil, row)
	})
}
