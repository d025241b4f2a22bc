package enginetest

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// testVersions checks that each kind of change to a partition changes its version. It does nothing for engines without
// versions, such as engines whose rows may be changed by other processes.
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
		"clear": func() {
			if takesClear(e) {
				write(t, e, engine.Sealed, partition, clearRange(mark(1)[:1], mark(1)[:1]))
			} else {
				write(t, e, engine.Sealed, partition, remove(mark(1)))
			}
		},
	} {
		before := version()
		change()
		require.True(t, !versioned(v) || before != version(), what)
	}
	testVersionsOfSealedRows(t, e, v)
	_, known := v.Version(engine.Stage, engine.Key{engine.Int(1), engine.Int(1)})
	require.False(t, known, "nobody remembers the stage")
	_, known = v.Version(engine.Sealed, engine.Key{engine.Int(1)})
	require.True(t, !known || !versioned(v), "not a partition")
}

// testVersionsOfSealedRows checks that each change of rows of series and of pages changes the version. It writes small
// and large values, because an engine may write them in different ways.
func testVersionsOfSealedRows(t *testing.T, e engine.Engine, v engine.Versioned) {
	partition := engine.Key{engine.Int(7), engine.Int(0), engine.Text("t"), engine.Text("m"), engine.Int(0)}
	row := func(n byte) engine.Key { return engine.Key{engine.Int(1), engine.Int(0), id(1), id(n)} }
	page := func(n byte) engine.Key {
		return engine.Key{engine.Int(1), engine.Int(0), engine.Int(3), id(1), id(n)}
	}
	for _, of := range []struct {
		table      *engine.Table
		key, other engine.Key
	}{{engine.Raw, row(2), row(3)}, {engine.RawPages, page(2), page(3)}} {
		version := func() uint64 {
			n, known := v.Version(of.table, partition)
			require.Equal(t, known, versioned(v), of.table)
			return n
		}
		for what, change := range map[string]func(){
			"put": func() { write(t, e, of.table, partition, put(of.key, "x")) },
			"put of much": func() {
				write(t, e, of.table, partition, put(of.other, strings.Repeat("x", engine.MaxValue)))
			},
			"delete":       func() { write(t, e, of.table, partition, remove(of.key)) },
			"drop":         func() { require.NoError(t, e.Drop(context.Background(), of.table, partition)) },
			"drop of more": func() { require.NoError(t, e.Drop(context.Background(), of.table, partition[:1])) },
		} {
			before := version()
			change()
			require.True(t, !versioned(v) || before != version(), "%s in %s", what, of.table)
		}
	}
}

func versioned(v engine.Versioned) bool {
	_, ok := v.Version(engine.Windows, engine.Key{engine.Text("t")})
	return ok
}

// testVersionsAtOnce checks that, while the version of a partition is unchanged, a new scan returns the same rows as an
// earlier scan, and that these rows include all rows that were written before. Other writes, including canceled writes,
// run concurrently.
func testVersionsAtOnce(t *testing.T, e engine.Engine) {
	v, ok := e.(engine.Versioned)
	if !ok || !versioned(v) {
		return
	}
	for _, at := range []versionedRows{
		{
			engine.Windows, engine.Key{engine.Text("t")},
			func(i int) engine.Key { return engine.Key{engine.Int(int64(i))} },
		},
		{
			engine.Raw, engine.Key{engine.Int(7), engine.Int(0), engine.Text("t"), engine.Text("m"), engine.Int(0)},
			func(i int) engine.Key { return engine.Key{engine.Int(1), engine.Int(int64(i)), id(1), id(2)} },
		},
	} {
		at.testAtOnce(t, e, v)
	}
}

// versionedRows is a partition with a version, and its rows.
type versionedRows struct {
	table     *engine.Table
	partition engine.Key
	key       func(i int) engine.Key // of the i-th row
}

func (at *versionedRows) testAtOnce(t *testing.T, e engine.Engine, v engine.Versioned) {
	const rows = 300
	var written atomic.Int64
	var running sync.WaitGroup
	running.Go(func() {
		defer written.Store(rows)
		row := func(i int) []engine.Batch {
			return []engine.Batch{
				{Table: at.table, Partition: at.partition, Mutations: []engine.Mutation{put(at.key(i), "x")}},
			}
		}
		for i := range rows {
			if i%3 == 0 { // A canceled write may be applied now, later, or never.
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
				if !at.holds(t, e, v, &written) {
					return
				}
			}
		})
	}
	running.Wait()
}

// holds scans the partition, and checks that new scans return the same rows while the version is unchanged.
func (at *versionedRows) holds(t *testing.T, e engine.Engine, v engine.Versioned, written *atomic.Int64) bool {
	before, ok := v.Version(at.table, at.partition)
	if !ok { // A write is in progress.
		return true
	}
	remembered, err := tryScan(e, engine.Range{Table: at.table, Partition: at.partition})
	if !assert.NoError(t, err) {
		return false
	}
	for range 20 {
		there := int(written.Load())
		if now, ok := v.Version(at.table, at.partition); !ok || now != before {
			return true
		}
		if !assert.GreaterOrEqual(t, len(remembered), there, "the version is the same, and rows are missing") {
			return false
		}
		found, err := tryScan(e, engine.Range{Table: at.table, Partition: at.partition})
		if !assert.NoError(t, err) {
			return false
		}
		if now, ok := v.Version(at.table, at.partition); !ok || now != before {
			return true
		}
		if !assert.Equal(t, remembered, found, "the version is the same, and rows differ") {
			return false
		}
	}
	return true
}
