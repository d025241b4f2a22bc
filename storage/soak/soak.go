package soak

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Environment variables of a run, see the package documentation.
const (
	SeedVariable  = "CASSIA_SEED"
	TimesVariable = "CASSIA_SOAK"
)

// Seed returns the seed of a test: the value of CASSIA_SEED, or a random one. If the test fails, its log ends with the
// command that repeats it with this seed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, given := readNumber(t, SeedVariable)
	if !given {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("run it again with: %s", Command(packagePath(), t.Name(), seed, Times(t, 1)))
		}
	})
	return seed
}

// FirstSeed returns the first seed of a test that uses consecutive seeds: the value of CASSIA_SEED, or 0, so that every
// run of `make test` uses the same seeds.
func FirstSeed(t testing.TB) uint64 {
	t.Helper()
	seed, _ := readNumber(t, SeedVariable)
	return seed
}

// Seeds returns n consecutive seeds, starting with FirstSeed.
func Seeds(t testing.TB, n int) iter.Seq[uint64] {
	t.Helper()
	first := FirstSeed(t)
	return func(yield func(uint64) bool) {
		for i := range uint64(n) {
			if !yield(first + i) {
				return
			}
		}
	}
}

// Command returns the command that repeats a test with a seed. pkg is the package's folder in the repository; times is
// the value of CASSIA_SOAK.
func Command(pkg, test string, seed uint64, times int) string {
	var parts []string
	for part := range strings.SplitSeq(test, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	set := fmt.Sprintf("%s=%d", SeedVariable, seed)
	if times != 1 {
		set += fmt.Sprintf(" %s=%d", TimesVariable, times)
	}
	return fmt.Sprintf("%s go test -count=1 -run '%s' ./%s", set, strings.Join(parts, "/"), pkg)
}

// Times returns the number of repetitions of a test: usual, or usual times CASSIA_SOAK if CASSIA_SOAK is set.
func Times(t testing.TB, usual int) int {
	t.Helper()
	if times, ok := readNumber(t, TimesVariable); ok && times > 0 {
		return usual * int(times)
	}
	return usual
}

// underRace is the max number of histories per test under the race detector.
const underRace = 3

// Histories is like Times, for tests that run histories of sequential steps, each with another seed. Under the race
// detector usual is first reduced to a fifth, at least 1 and at most underRace, because all histories run the same
// goroutines. Tests with concurrent steps use Times instead, because each seed gives another order of the steps.
func Histories(t testing.TB, usual int) int {
	t.Helper()
	if UnderRace {
		usual = min(Fewer(usual), underRace)
	}
	return Times(t, usual)
}

// Fewer returns n or, under the race detector, a fifth of n, at least 1. It is for tests that try n different inputs,
// because more inputs don't reveal more races.
func Fewer(n int) int {
	if UnderRace {
		return max(1, n/5)
	}
	return n
}

func readNumber(t testing.TB, variable string) (n uint64, ok bool) {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q, not a number", variable, text)
	}
	return n, true
}

// packagePath returns the folder of the package under test, relative to the repository's root.
func packagePath() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for up := dir; ; up = filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			below, err := filepath.Rel(up, dir)
			if err != nil {
				return "."
			}
			return filepath.ToSlash(below)
		}
		if up == filepath.Dir(up) {
			return "."
		}
	}
}

// Amount returns usual in `make test`, and soaked times CASSIA_SOAK if CASSIA_SOAK is set.
func Amount(t testing.TB, usual, soaked int) int {
	t.Helper()
	if times, ok := readNumber(t, TimesVariable); ok && times > 0 {
		return soaked * int(times)
	}
	return usual
}
