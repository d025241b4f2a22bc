package soak

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeedIsGivenOrDrawn(t *testing.T) {
	t.Setenv(SeedVariable, "")
	require.NotEqual(t, Seed(t), Seed(t))
	t.Setenv(SeedVariable, "17")
	require.Equal(t, uint64(17), Seed(t))
}

func TestSeedsAreConsecutive(t *testing.T) {
	t.Setenv(SeedVariable, "")
	require.Equal(t, []uint64{0, 1, 2}, slices.Collect(Seeds(t, 3)))
	t.Setenv(SeedVariable, "17")
	require.Equal(t, []uint64{17, 18}, slices.Collect(Seeds(t, 2)))
}

func TestTimes(t *testing.T) {
	t.Setenv(TimesVariable, "")
	require.Equal(t, 12, Times(t, 12))
	t.Setenv(TimesVariable, "5")
	require.Equal(t, 60, Times(t, 12))
}

func TestHistories(t *testing.T) {
	t.Setenv(TimesVariable, "")
	require.Equal(t, 1, Histories(t, 1))
	if UnderRace {
		require.Equal(t, 2, Histories(t, 12))
		require.Equal(t, underRace, Histories(t, 200))
	} else {
		require.Equal(t, 200, Histories(t, 200))
	}
	t.Setenv(TimesVariable, "5")
	require.Equal(t, 5, Histories(t, 1))
}

func TestCommandNamesTestSeedAndPackage(t *testing.T) {
	require.Equal(t, "CASSIA_SEED=3 go test -count=1 -run '^TestX$/^a_\\(b\\)$' ./storage/soak",
		Command(packagePath(), "TestX/a_(b)", 3, 1))
	require.Equal(t, "CASSIA_SEED=3 CASSIA_SOAK=4 go test -count=1 -run '^TestX$' ./storage/soak",
		Command("storage/soak", "TestX", 3, 4))
}
