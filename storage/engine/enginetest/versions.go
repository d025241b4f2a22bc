package enginetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// testVersions writes in every way: the version of the partition differs afterwards. Engines whose rows others change, too, have none.
func testVersions(t *testing.T, e engine.Engine) {
	v, ok := e.(engine.Versioned)
	if !ok {
		return
	}
	partition := engine.Key{engine.Int(7), engine.Text("t")}
	version := func() uint64 {
		n, known := v.Version(engine.Sealed, partition)
		require.Equal(t, known, versioned(v))
		return n
	}
	mark := func(i int) engine.Key { return engine.Key{engine.Int(int64(i)), engine.Int(0), id(byte(i))} }
	for what, change := range map[string]func(){
		"put":    func() { write(t, e, engine.Sealed, partition, put(mark(1), "")) },
		"delete": func() { write(t, e, engine.Sealed, partition, remove(mark(1))) },
		"drop":   func() { require.NoError(t, e.Drop(context.Background(), engine.Sealed, engine.Key{engine.Int(7)})) },
	} {
		before := version()
		change()
		require.True(t, !versioned(v) || before != version(), what)
	}
	_, known := v.Version(engine.Stage, engine.Key{engine.Int(1), engine.Int(1)})
	require.False(t, known, "nobody remembers the stage")
	_, known = v.Version(engine.Sealed, engine.Key{engine.Int(1)})
	require.True(t, !known || !versioned(v), "not a partition")
}

func versioned(v engine.Versioned) bool {
	_, ok := v.Version(engine.Windows, engine.Key{engine.Text("t")})
	return ok
}

// testVersionsAtOnce scans while others write, also such as are cancelled: as long as the version is the same, the rows that were
// scanned are what a scan finds, and has all that was written by then.
func testVersionsAtOnce(t *testing.T, e engine.Engine) {
	v, ok := e.(engine.Versioned)
	if !ok || !versioned(v) {
		return
	}
	const rows = 300
	partition := engine.Key{engine.Text("t")}
	var written atomic.Int64
	var running sync.WaitGroup
	running.Go(func() {
		defer written.Store(rows)
		row := func(i int) []engine.Batch {
			return []engine.Batch{{Table: engine.Windows, Partition: partition, Mutations: []engine.Mutation{put(engine.Key{engine.Int(int64(i))}, "x")}}}
		}
		for i := range rows {
			if i%3 == 0 { // It is written then, or later, or not.
				ctx, cancel := context.WithCancel(context.Background())
				go cancel()
				_ = e.Write(ctx, row(rows+i))
				cancel()
			}
			if !assert.NoError(t, e.Write(context.Background(), row(i))) {
				return
			}
			written.Store(int64(i + 1))
		}
	})
	for range 2 {
		running.Go(func() {
			for written.Load() < rows {
				if !testVersionHolds(t, e, v, partition, &written) {
					return
				}
			}
		})
	}
	running.Wait()
}

// testVersionHolds caches what it scans as long as the version is the same.
func testVersionHolds(t *testing.T, e engine.Engine, v engine.Versioned, partition engine.Key, written *atomic.Int64) bool {
	before, ok := v.Version(engine.Windows, partition)
	if !ok { // A write is under way.
		return true
	}
	remembered, err := tryScan(e, engine.Range{Table: engine.Windows, Partition: partition})
	if !assert.NoError(t, err) {
		return false
	}
	for range 20 {
		there := int(written.Load())
		if now, ok := v.Version(engine.Windows, partition); !ok || now != before {
			return true
		}
		if !assert.GreaterOrEqual(t, len(remembered), there, "the version is the same, and rows are missing") {
			return false
		}
		found, err := tryScan(e, engine.Range{Table: engine.Windows, Partition: partition})
		if !assert.NoError(t, err) {
			return false
		}
		if now, ok := v.Version(engine.Windows, partition); !ok || now != before {
			return true
		}
		if !assert.Equal(t, remembered, found, "the version is the same, and rows differ") {
			return false
		}
	}
	return true
}
