package faultengine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

func TestConformance(t *testing.T) {
	wrapped := func() *faultengine.Engine {
		return faultengine.Wrap(memory.New(), func(faultengine.Op) faultengine.Action { return faultengine.Pass() })
	}
	for name, open := range map[string]func() engine.Engine{
		"plain":   func() engine.Engine { return wrapped() },
		"probing": func() engine.Engine { return probing{wrapped()} },
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, func(testing.TB) engine.Engine { return open() },
				enginetest.Without("Durable", "what is in memory ends with the process"))
		})
	}
}

// probing is an engine that implements engine.Prober.
type probing struct{ *faultengine.Engine }

func (e probing) Occupied(ctx context.Context, t *engine.Table, partitions []engine.Key) ([]bool, error) {
	return faultengine.Occupied(ctx, e, t, partitions)
}

var ctx = context.Background()

func mark(partition int64, value string) engine.Batch {
	return engine.Batch{Table: engine.Shards, Partition: engine.Key{engine.Int(partition), engine.Text("t")},
		Mutations: []engine.Mutation{{Clustering: engine.Key{engine.Text("mark")}, Timestamp: 1, Value: []byte(value)}}}
}

func values(t *testing.T, e engine.Engine, partition int64) []string {
	var out []string
	for r, err := range e.Scan(ctx, engine.Range{
		Table: engine.Shards, Partition: engine.Key{engine.Int(partition), engine.Text("t")},
	}) {
		require.NoError(t, err)
		out = append(out, string(r.Value))
	}
	return out
}

func TestFates(t *testing.T) {
	own := errors.New("own")
	inner := memory.New()
	e := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
		if op.Kind != faultengine.Write || op.Table != engine.Shards {
			return faultengine.Pass()
		}
		switch op.N {
		case 1:
			return faultengine.Fail(nil)
		case 2:
			return faultengine.Lose(own)
		case 3:
			return faultengine.Withhold(nil)
		default:
			return faultengine.Pass()
		}
	})
	err := e.Write(ctx, []engine.Batch{mark(1, "a")})
	require.ErrorIs(t, err, faultengine.ErrFault)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.Empty(t, values(t, inner, 1))

	require.Equal(t, own, e.Write(ctx, []engine.Batch{mark(2, "b")}))
	require.Equal(t, []string{"b"}, values(t, inner, 2))

	// Both batches are in one Write. The first is withheld, and the second passes.
	batches := []engine.Batch{mark(3, "c"), mark(4, "d")}
	require.ErrorIs(t, e.Write(ctx, batches), faultengine.ErrFault)
	batches[0].Mutations[0].Value[0] = 'x'
	require.Empty(t, values(t, inner, 3))
	require.Equal(t, []string{"d"}, values(t, inner, 4))
	require.Equal(t, 1, e.Withheld())
	require.NoError(t, e.ApplyWithheld(ctx))
	require.Equal(t, []string{"c"}, values(t, inner, 3), "what was handed in then is applied, not what became of it")
	require.Zero(t, e.Withheld())

	require.NoError(t, e.Write(ctx, []engine.Batch{mark(1, "a")}))
	require.Equal(t, []string{"a"}, values(t, inner, 1))
}

func TestRefusalsComeFirst(t *testing.T) {
	asked := 0
	e := faultengine.Wrap(memory.New(), func(faultengine.Op) faultengine.Action {
		asked++
		return faultengine.Withhold(nil)
	})
	bad := mark(1, "a")
	bad.Partition = nil
	require.ErrorIs(t, e.Write(ctx, []engine.Batch{mark(1, "a"), bad}), engine.ErrBadKey)
	require.Zero(t, asked)
}

// TestClears checks the results of a lost and of a withheld Clear, and that a Clear on an engine that doesn't support
// it is rejected before the rule is called.
func TestClears(t *testing.T) {
	clear := func(partition int64) engine.Batch {
		b := mark(partition, "new")
		bound := engine.Key{engine.Text("other")}
		b.Mutations = append(b.Mutations, engine.Mutation{Op: engine.Clear, Clustering: bound, To: bound})
		return b
	}
	fate := faultengine.Pass()
	inner := memory.New()
	e := faultengine.Wrap(inner, func(faultengine.Op) faultengine.Action { return fate })
	for partition := range int64(2) {
		b := mark(partition, "old")
		b.Mutations[0].Clustering, b.Mutations[0].Timestamp = engine.Key{engine.Text("other")}, 9
		require.NoError(t, e.Write(ctx, []engine.Batch{b}))
	}
	fate = faultengine.Lose(nil)
	require.ErrorIs(t, e.Write(ctx, []engine.Batch{clear(0)}), faultengine.ErrFault)
	require.Equal(t, []string{"new"}, values(t, inner, 0))
	fate = faultengine.Withhold(nil)
	b := clear(1)
	require.ErrorIs(t, e.Write(ctx, []engine.Batch{b}), faultengine.ErrFault)
	b.Mutations[1].To[0] = engine.Text("")
	require.Equal(t, []string{"old"}, values(t, inner, 1))
	require.NoError(t, e.ApplyWithheld(ctx))
	require.Equal(t, []string{"new"}, values(t, inner, 1))

	asked := false
	server := faultengine.Wrap(memory.NewExpiring(time.Now), func(faultengine.Op) faultengine.Action {
		asked = true
		return faultengine.Withhold(nil)
	})
	require.False(t, server.TakesClear())
	require.ErrorIs(t, server.Write(ctx, []engine.Batch{mark(1, "a"), clear(2)}), engine.ErrBadWrite)
	require.False(t, asked)
}

func TestScanBreaksOff(t *testing.T) {
	inner := memory.New()
	for i, c := range []struct {
		action faultengine.Action
		rows   int
	}{
		{faultengine.Fail(nil), 0}, {faultengine.FailAfter(2, nil), 2}, {faultengine.FailAfter(9, nil), 3},
		{faultengine.Lose(nil), 3},
	} {
		e := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Scan {
				return c.action
			}
			return faultengine.Pass()
		})
		b := mark(1, "")
		for _, name := range []string{"a", "b", "c"} {
			b.Mutations[0].Clustering = engine.Key{engine.Text(name)}
			require.NoError(t, e.Write(ctx, []engine.Batch{b}))
		}
		rows, failures := 0, 0
		for r, err := range e.Scan(ctx, engine.Range{Table: engine.Shards, Partition: b.Partition}) {
			if err == nil {
				rows++
				continue
			}
			require.ErrorIs(t, err, faultengine.ErrFault)
			require.Zero(t, r)
			failures++
		}
		require.Equal(t, c.rows, rows, "case %d", i)
		require.Equal(t, 1, failures, "case %d", i)
	}
}

func TestDropAndCompareAndSet(t *testing.T) {
	inner := memory.New()
	next := faultengine.Pass()
	e := faultengine.Wrap(inner, func(faultengine.Op) faultengine.Action { return next })
	require.NoError(t, e.Write(ctx, []engine.Batch{mark(1, "a")}))
	set := func(old, value string) (bool, []byte, error) {
		var expected []byte
		if old != "" {
			expected = []byte(old)
		}
		return e.CompareAndSet(
			ctx, engine.Store, engine.Key{engine.Text("s")}, engine.Key{engine.Text("i")}, expected, []byte(value),
		)
	}

	next = faultengine.Withhold(nil)
	require.ErrorIs(t, e.Drop(ctx, engine.Shards, nil), faultengine.ErrFault)
	_, _, err := set("", "one")
	require.ErrorIs(t, err, faultengine.ErrFault)
	require.Len(t, values(t, inner, 1), 1)
	require.NoError(t, e.ApplyWithheld(ctx))
	require.Empty(t, values(t, inner, 1))

	next = faultengine.Lose(nil)
	_, _, err = set("one", "two")
	require.ErrorIs(t, err, faultengine.ErrFault)
	next = faultengine.Pass()
	ok, found, err := set("one", "three")
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, "two", string(found))
}

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		open := make(chan struct{})
		e := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write {
				return faultengine.Pass().After(open)
			}
			return faultengine.Pass()
		})
		cancelled, cancel := context.WithCancel(ctx)
		results := make(chan error, 2)
		go func() { results <- e.Write(cancelled, []engine.Batch{mark(1, "a")}) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-results, context.Canceled)
		go func() { results <- e.Write(ctx, []engine.Batch{mark(2, "b")}) }()
		synctest.Wait()
		require.Empty(t, values(t, inner, 2))
		close(open)
		require.NoError(t, <-results)
		require.Equal(t, []string{"b"}, values(t, inner, 2))
		require.Empty(t, values(t, inner, 1))
	})
}

// versioned is an engine that implements engine.Versioned.
type versioned struct{ engine.Engine }

func (versioned) Version(*engine.Table, engine.Key) (uint64, bool) { return 7, true }

// TestVersions checks that Version returns the version of the wrapped engine, if the wrapped engine has versions.
func TestVersions(t *testing.T) {
	pass := func(faultengine.Op) faultengine.Action { return faultengine.Pass() }
	b := mark(1, "v")
	version, ok := faultengine.Wrap(versioned{memory.New()}, pass).Version(b.Table, b.Partition)
	require.True(t, ok)
	require.EqualValues(t, 7, version)
	_, ok = faultengine.Wrap(struct{ engine.Engine }{memory.New()}, pass).Version(b.Table, b.Partition)
	require.False(t, ok)
}
