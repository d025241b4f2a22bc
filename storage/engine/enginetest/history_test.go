package enginetest

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestHistoryText checks that histories that are written as text and read back are unchanged.
func TestHistoryText(t *testing.T) {
	for seed := range uint64(20) {
		history := generate(rand.New(rand.NewPCG(seed, 0)), 500, []string{verbReopen, verbCrash, verbCompact})
		var b bytes.Buffer
		require.NoError(t, writeHistory(&b, history))
		text := b.String()
		again, err := readHistory(&b)
		require.NoError(t, err)
		require.Len(t, again, len(history))
		var c bytes.Buffer
		require.NoError(t, writeHistory(&c, again))
		require.Equal(t, text, c.String())
	}
	for _, bad := range []string{
		"put", "jump", "put nowhere 1", `scan stage 1,2 - - 0`, `put stage 1,x - 1 "v"`, `drop raw "a`, "commit now",
		`cas store "a" "b" nil`,
	} {
		_, err := readHistory(strings.NewReader("# a comment\n\n" + bad + "\n"))
		require.ErrorContains(t, err, "line 3", bad)
	}
}

// TestModelAgainstItself compares the model with itself, and checks that histories contain operations of all kinds.
func TestModelAgainstItself(t *testing.T) {
	s := Subject{Open: func(testing.TB) engine.Engine { return memory.New() }}
	for seed := range uint64(5) {
		Metamorphic(t, s, seed, 2000)
	}
	verbs := map[string]int{}
	for _, s := range generate(rand.New(rand.NewPCG(1, 0)), 8000, nil) {
		verbs[s.verb]++
	}
	for _, verb := range []string{
		verbPut, verbDelete, verbDeleteRange, verbClear, verbScan, verbDrop, verbCAS, verbCommit,
	} {
		require.Greater(t, verbs[verb], 10, verb)
	}
}
