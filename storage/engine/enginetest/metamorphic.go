package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// Subject is an engine under test, with the faults that can occur between its operations.
type Subject struct {
	Open Opener
	// Reopen closes the engine and opens it again. If it is nil, histories don't reopen the engine.
	Reopen Reopener
	// Crash simulates a power failure, and opens the engine again with the data that survived. Which unsynced data
	// survives may differ from call to call. If Crash is nil, histories have no crashes.
	Crash func(t testing.TB, e engine.Engine, rng *rand.Rand) engine.Engine
	// Compact makes the engine compact its files. If it is nil, histories have no compactions.
	Compact func(t testing.TB, e engine.Engine)
	// NoDrop is true if Drop does nothing because rows expire. Histories then have no drops.
	NoDrop bool
	// NoClear is true if the engine doesn't support engine.Clear. Histories then have no clears.
	NoClear bool
}

// Metamorphic runs one history, generated from seed, on a subject and on a plain model, and compares all results. If
// they differ, it writes the history to a file for Replay, and prints the file's name.
func Metamorphic(t *testing.T, s Subject, seed uint64, steps int) {
	var special []string
	if s.Reopen != nil {
		special = append(special, verbReopen)
	}
	if s.Crash != nil {
		special = append(special, verbCrash)
	}
	if s.Compact != nil {
		special = append(special, verbCompact)
	}
	history := generate(rand.New(rand.NewPCG(seed, 0)), steps, special)
	history = slices.DeleteFunc(history, func(step step) bool {
		return s.NoDrop && step.verb == verbDrop || s.NoClear && step.verb == verbClear
	})
	done := runHistory(t, s, history)
	if t.Failed() {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("cassia-history-%d.txt", seed))
		var b bytes.Buffer
		require.NoError(t, writeHistory(&b, history[:done]))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
		t.Logf("seed %d: the last of %d steps differs. The history is in %s; it ends with\n%s", seed, done, path,
			tail(history[:done], 10))
	}
}

// Replay runs a history that Metamorphic has written to a file.
func Replay(t *testing.T, s Subject, path string) {
	file, err := os.Open(path)
	require.NoError(t, err)
	history, err := readHistory(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	if done := runHistory(t, s, history); t.Failed() {
		t.Logf("step %d differs:\n%s", done, tail(history[:done], 10))
	}
}

func tail(history []step, n int) string {
	var b strings.Builder
	for _, s := range history[max(0, len(history)-n):] {
		fmt.Fprintf(&b, "\t%.200s\n", s)
	}
	return b.String()
}

// runHistory runs a history until the results differ, and returns the number of executed steps, including the step
// whose results differed.
func runHistory(t *testing.T, s Subject, history []step) int {
	r := &run{Subject: s, model: memory.New(), subject: s.Open(t), rng: rand.New(rand.NewPCG(7, 7))}
	defer func() { require.NoError(t, r.subject.Close()) }()
	for i, step := range history {
		model, subject := r.runStep(t, step)
		if model != subject {
			t.Errorf("step %d: %.300s\nmodel   %.2000s\nsubject %.2000s", i+1, step, model, subject)
			return i + 1
		}
	}
	return len(history)
}

// run is the state of a history that is being run.
type run struct {
	Subject
	model   engine.Engine
	subject engine.Engine
	rng     *rand.Rand
	pending []engine.Batch
}

// runStep executes a step on both engines and returns their results as text.
func (r *run) runStep(t *testing.T, s step) (model, subject string) {
	switch s.verb {
	case verbPut, verbDelete, verbDeleteRange, verbClear:
		r.collect(s)
	case verbCommit:
		batches := r.pending
		r.pending = nil
		return answer(r.model.Write(context.Background(), batches)),
			answer(r.subject.Write(context.Background(), batches))
	case verbScan:
		return scanAnswer(r.model, s), scanAnswer(r.subject, s)
	case verbDrop:
		return answer(r.model.Drop(context.Background(), s.table, s.key)),
			answer(r.subject.Drop(context.Background(), s.table, s.key))
	case verbCAS:
		return casAnswer(r.model, s), casAnswer(r.subject, s)
	case verbReopen:
		r.subject = r.Reopen(t, r.subject)
	case verbCrash:
		r.subject = r.Crash(t, r.subject, r.rng)
	case verbCompact:
		r.Compact(t, r.subject)
	}
	return "", ""
}

// collect adds a mutation to the batches that the next commit writes.
func (r *run) collect(s step) {
	n := len(r.pending)
	if n == 0 || r.pending[n-1].Table != s.table || engine.Compare(r.pending[n-1].Partition, s.key) != 0 {
		r.pending = append(r.pending, engine.Batch{Table: s.table, Partition: s.key})
		n++
	}
	op := map[string]engine.Op{verbPut: engine.Put, verbDelete: engine.Delete, verbDeleteRange: engine.DeleteRange,
		verbClear: engine.Clear}[s.verb]
	b := &r.pending[n-1]
	b.Mutations = append(b.Mutations, engine.Mutation{Op: op, Clustering: s.from, To: s.to,
		Timestamp: s.timestamp, Value: s.value})
}

// answer returns the text of a result. Engines must agree on success and failure, but may return different errors.
func answer(err error) string {
	if err != nil {
		return "error"
	}
	return "done"
}

func scanAnswer(e engine.Engine, s step) string {
	rows, err := tryScan(e, engine.Range{Table: s.table, Partition: s.key, From: s.from, To: s.to,
		KeysOnly: s.keysOnly, Limit: s.limit})
	if err != nil {
		return "error " + err.Error()
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "%s", formatKey(row.key))
		if !s.keysOnly {
			fmt.Fprintf(&b, "=%q", row.value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func casAnswer(e engine.Engine, s step) string {
	ok, found, err := e.CompareAndSet(context.Background(), s.table, s.key, s.from,
		slices.Clone(s.old), slices.Clone(s.value))
	if err != nil {
		return "error"
	}
	return fmt.Sprintf("%v %v %q", ok, found == nil, found)
}
