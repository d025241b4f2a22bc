package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEverySoakedTestIsThere checks that the listed tests exist. Otherwise a renamed test would be detected only during
// the next soak test.
func TestEverySoakedTestIsThere(t *testing.T) {
	for _, s := range all {
		found := false
		files, err := os.ReadDir("../../../" + s.pkg)
		require.NoError(t, err)
		for _, f := range files {
			if f.IsDir() {
				continue
			}
			text, err := os.ReadFile("../../../" + s.pkg + "/" + f.Name())
			require.NoError(t, err)
			found = found || regexp.MustCompile(`(?m)^func `+s.test+`\(t \*testing\.T\) \{`).Match(text)
		}
		require.True(t, found, "%s of %s", s.test, s.pkg)
	}
}

// TestSeedsDrawEveryTest checks that a round with a share runs that share of the tests, and that some seed selects each
// of them.
func TestSeedsDrawEveryTest(t *testing.T) {
	drawn := map[soaked]bool{}
	for seed := range uint64(100) {
		s := soaking{share: 3}
		round := s.draw(slices.Clone(all), rand.New(rand.NewPCG(seed, 0)))
		require.Len(t, round, (len(all)+2)/3)
		for _, test := range round {
			drawn[test] = true
		}
	}
	require.Len(t, drawn, len(all))
	require.Len(t, (&soaking{}).draw(slices.Clone(all), rand.New(rand.NewPCG(1, 0))), len(all))
}

func TestSoakOfWhatIsNotThere(t *testing.T) {
	s := soaking{out: &bytes.Buffer{}, only: "TestThatNobodyWrote"}
	_, err := s.run(context.Background())
	require.ErrorContains(t, err, "TestThatNobodyWrote")
}

// TestOutputWorthReading checks that both ends of a long output are kept and that passed tests are removed.
func TestOutputWorthReading(t *testing.T) {
	long := "=== RUN   TestA\n    a_test.go:1: the cause\n--- FAIL: TestA (0.00s)\n    --- PASS: TestA/b (0.00s)\n"
	require.Equal(t, "    a_test.go:1: the cause\n--- FAIL: TestA (0.00s)\n", worthReading([]byte(long)))
	for range maxOutput / 10 {
		long += "    a line of it\n"
	}
	text := worthReading([]byte(long + "the end\n"))
	require.Contains(t, text, "the cause")
	require.Contains(t, text, " bytes left out]\n")
	require.Contains(t, text, "the end\n")
	require.Less(t, len(text), maxOutput+100)
}
