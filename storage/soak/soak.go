package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The variables that a run is set by, see the package's description.
const (
	SeedVariable  = "CASSIA_SEED"
	TimesVariable = "CASSIA_SOAK"
)

// Seed returns the seed of a test: the value of CASSIA_SEED, or a random one. If the test fails, its log ends with the
// command that runs it with that seed again.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, given := number(t, SeedVariable)
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

// First returns the first of the seeds of a test that takes them one after the other, the same in every run of `make test`:
// the value of CASSIA_SEED, or 0.
func First(t testing.TB) uint64 {
	t.Helper()
	seed, _ := number(t, SeedVariable)
	return seed
}

// Command returns the command that runs a test of a package again with a seed. The package is its folder in the repository;
// times is how many times as much the test did as usually.
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

// Times returns how often a test does what it does usual times in `make test`.
func Times(t testing.TB, usual int) int {
	t.Helper()
	if times, ok := number(t, TimesVariable); ok && times > 0 {
		return usual * int(times)
	}
	return usual
}

// underRace is how many histories a test plays at most under the race detector.
const underRace = 3

// Histories returns how many histories a test plays that usually plays so many, each with another seed, and one step after the other. Under
// the race detector these are a fifth, but at least one and at most underRace: whatever goroutines a step starts run in each of them. Tests whose
// steps run beside each other go by Times: there another seed is another order.
func Histories(t testing.TB, usual int) int {
	t.Helper()
	if UnderRace {
		usual = min(Fewer(usual), underRace)
	}
	return Times(t, usual)
}

// Fewer returns how many of n things a test tries: n, or a fifth and at least one under the race detector, where trying the same
// with other data finds no other race.
func Fewer(n int) int {
	if UnderRace {
		return max(1, n/5)
	}
	return n
}

func number(t testing.TB, variable string) (n uint64, ok bool) {
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

// packagePath is the folder of the package under test in the repository.
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

// Amount returns how much a test does: usual in `make test`, and many times more where somebody soaks.
func Amount(t testing.TB, usual, soaked int) int {
	t.Helper()
	if times, ok := number(t, TimesVariable); ok && times > 0 {
		return soaked * int(times)
	}
	return usual
}
