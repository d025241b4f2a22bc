package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func testCompareAndSet(t *testing.T, e engine.Engine) {
	ctx := context.Background()
	partition, key := engine.Key{engine.Text("settings")}, engine.Key{engine.Text("periods")}
	steps := []struct {
		name       string
		old, value []byte
		ok         bool
		found      []byte
	}{
		{"no row, one expected", []byte("x"), []byte("y"), false, nil},
		{"no row, an empty one expected", []byte{}, []byte("y"), false, nil},
		{"create, empty", nil, []byte{}, true, nil},
		{"an empty row is a row", nil, []byte("a"), false, []byte{}},
		{"replace the empty one", []byte{}, []byte("a"), true, nil},
		{"create again", nil, []byte("b"), false, []byte("a")},
		{"another value expected", []byte("b"), []byte("c"), false, []byte("a")},
		{"replace", []byte("a"), []byte("b"), true, nil},
		{"replace by the same", []byte("b"), []byte("b"), true, nil},
		{"replace by nothing", []byte("b"), nil, true, nil},
		{"which is an empty row", []byte{}, []byte("c"), true, nil},
	}
	for _, s := range steps {
		ok, found, err := e.CompareAndSet(ctx, engine.Store, partition, key, s.old, s.value)
		require.NoError(t, err, s.name)
		require.Equal(t, s.ok, ok, s.name)
		require.Equal(t, s.found, found, s.name)
		if ok {
			requireRows(t, []row{{key, string(s.value)}}, scanPartition(t, e, engine.Store, partition), "%s", s.name)
		}
	}
	ok, _, err := e.CompareAndSet(ctx, engine.Store, partition, engine.Key{engine.Text("other")}, nil, []byte("z"))
	require.NoError(t, err)
	require.True(t, ok, "rows are set one by one")
	require.Len(t, scanPartition(t, e, engine.Store, partition), 2)

	_, _, err = e.CompareAndSet(ctx, engine.Shards, plainKey(engine.Shards.Partition),
		plainKey(engine.Shards.Clustering), nil, []byte("z"))
	require.ErrorIs(t, err, engine.ErrBadWrite)
	_, _, err = e.CompareAndSet(ctx, engine.Store, nil, key, nil, []byte("z"))
	require.ErrorIs(t, err, engine.ErrBadKey)
	_, _, err = e.CompareAndSet(ctx, engine.Store, partition, key, nil, make([]byte, engine.MaxValue+1))
	require.ErrorIs(t, err, engine.ErrTooLarge)
}

// testCompareAndSetAtOnce checks that no increment is lost if many goroutines increment a counter. An increment for
// which the engine returned ErrUnavailable may or may not have been applied.
func testCompareAndSetAtOnce(t *testing.T, e engine.Engine) {
	const workers, counts = 8, 20
	partition, key := engine.Key{engine.Text("settings")}, engine.Key{engine.Text("count")}
	errs := make(chan error, workers)
	var unknown atomic.Int64
	for range workers {
		go func() { errs <- countUp(e, partition, key, counts, &unknown) }()
	}
	for range workers {
		require.NoError(t, <-errs)
	}
	rows := scanPartition(t, e, engine.Store, partition)
	require.Len(t, rows, 1)
	require.Zero(t, engine.Compare(key, rows[0].key))
	sum, err := strconv.Atoi(rows[0].value)
	require.NoError(t, err)
	require.GreaterOrEqual(t, sum, workers*counts)
	require.LessOrEqual(t, sum, workers*counts+int(unknown.Load()))
}

// countUp increments a counter the given number of times. It adds the increments with an unknown outcome to unknown.
func countUp(e engine.Engine, partition, key engine.Key, times int, unknown *atomic.Int64) error {
	var old []byte
	for done := 0; done < times; {
		n := 0
		if old != nil {
			var err error
			if n, err = strconv.Atoi(string(old)); err != nil {
				return err
			}
		}
		next := []byte(strconv.Itoa(n + 1))
		ok, found, err := e.CompareAndSet(context.Background(), engine.Store, partition, key, old, next)
		switch {
		case errors.Is(err, engine.ErrUnavailable) && unknown.Add(1) < int64(times):
		case err != nil:
			return err
		case ok:
			done++
			old = next
		default:
			old = found
		}
	}
	return nil
}

// testDrop drops windows, and checks that other windows are unchanged.
func testDrop(t *testing.T, e engine.Engine) {
	windows := []int64{-121, -120, -2, -1, 0, 1, 2, 119, 120, 20000}
	tables := []*engine.Table{engine.Sealed, engine.Raw, engine.Catalog, engine.Metadata}
	partitionOf := func(table *engine.Table, window int64) engine.Key {
		p := plainKey(table.Partition)
		p[0] = engine.Int(window)
		return p
	}
	left := map[string]bool{}
	for _, table := range tables {
		for _, window := range windows {
			write(t, e, table, partitionOf(table, window), put(plainKey(table.Clustering), "v"))
			left[fmt.Sprint(table, window)] = true
		}
	}
	for _, table := range tables {
		for _, window := range windows {
			if window%2 != 0 {
				continue
			}
			require.NoError(t, e.Drop(context.Background(), table, engine.Key{engine.Int(window)}))
			delete(left, fmt.Sprint(table, window))
		}
		for _, other := range tables {
			for _, window := range windows {
				got := scanPartition(t, e, other, partitionOf(other, window))
				require.Equal(t, left[fmt.Sprint(other, window)], len(got) == 1, "window %d of %s", window, other)
			}
		}
	}
}

// testDropByText checks Drop with a prefix that ends in a text field, the tenant. The rows of that tenant must be
// removed, but not the rows of other tenants whose names start with the tenant's name.
func testDropByText(t *testing.T, e engine.Engine) {
	tenants := edgeTexts()
	partitionOf := func(tenant string) engine.Key {
		return engine.Key{engine.Int(4), engine.Int(0), engine.Text(tenant), engine.Text("metric"), engine.Int(0)}
	}
	for _, tenant := range tenants {
		write(t, e, engine.Raw, partitionOf(tenant), put(plainKey(engine.Raw.Clustering), "v"))
	}
	for i, tenant := range tenants {
		require.NoError(t, e.Drop(context.Background(), engine.Raw, partitionOf(tenant)[:3]))
		for j, other := range tenants {
			require.Equal(t, j > i, len(scanPartition(t, e, engine.Raw, partitionOf(other))) == 1,
				"dropped %q, looked at %q", tenant, other)
		}
	}
}

func testDropAll(t *testing.T, e engine.Engine) {
	for _, table := range writable() {
		write(t, e, table, plainKey(table.Partition), put(plainKey(table.Clustering), "v"))
	}
	require.NoError(t, e.Drop(context.Background(), engine.Raw, nil))
	require.NoError(t, e.Drop(context.Background(), engine.Raw, nil), "nothing left to drop")
	for _, table := range writable() {
		require.Equal(t, table != engine.Raw,
			len(scanPartition(t, e, table, plainKey(table.Partition))) == 1, "table %s", table)
	}
}

func testWriteAfterDrop(t *testing.T, e engine.Engine) {
	for _, table := range []*engine.Table{engine.Sealed, engine.Shards} {
		partition, key := plainKey(table.Partition), plainKey(table.Clustering)
		for _, value := range []string{"z", "a"} {
			write(t, e, table, partition, put(key, value))
			requireRows(t, []row{{key, value}}, scanPartition(t, e, table, partition), "table %s", table)
			require.NoError(t, e.Drop(context.Background(), table, partition))
			require.Empty(t, scanPartition(t, e, table, partition), "table %s", table)
		}
	}
}

// testAtOnce writes, deletes and scans from many goroutines.
func testAtOnce(t *testing.T, e engine.Engine) {
	const workers, rounds = 8, 40
	partition := plainKey(engine.Stage.Partition)
	errs := make(chan error, workers)
	for w := range workers {
		go func() { errs <- writeAndLook(e, partition, id(byte(w)), rounds) }()
	}
	for range workers {
		require.NoError(t, <-errs)
	}
	require.Len(t, scanPartition(t, e, engine.Stage, partition), workers*rounds/2)
}

func writeAndLook(e engine.Engine, partition engine.Key, writer engine.Value, rounds int) error {
	mine := engine.Range{Table: engine.Stage, Partition: partition, From: engine.Key{writer}, To: engine.Key{writer}}
	left := 0
	for i := range int64(rounds) {
		key := engine.Key{writer, engine.Int(i)}
		mutations := []engine.Mutation{put(key, "v")}
		if i%2 == 0 {
			left++
		} else {
			mutations = append(mutations, remove(engine.Key{writer, engine.Int(i - 1)}))
		}
		if err := e.Write(context.Background(),
			[]engine.Batch{{Table: engine.Stage, Partition: partition, Mutations: mutations}}); err != nil {
			return err
		}
		rows, err := tryScan(e, mine)
		if err != nil {
			return err
		}
		if len(rows) != left {
			return fmt.Errorf("%d rows after round %d, want %d", len(rows), i, left)
		}
	}
	return nil
}

// testDurable makes changes of every kind, and checks after reopening the engine, twice, that they are applied.
func testDurable(t *testing.T, e engine.Engine, reopen Reopener, drops bool) {
	ctx := context.Background()
	stage, raw := plainKey(engine.Stage.Partition), plainKey(engine.Raw.Partition)
	low, store := plainKey(engine.Shards.Partition), plainKey(engine.Store.Partition)
	rows := edgeRows(engine.Stage, 30)
	writeShuffled(t, e, engine.Stage, stage, rows)
	writeShuffled(t, e, engine.Raw, raw, edgeRows(engine.Raw, 30))
	ring := durableClear(t, e)
	mark := func(timestamp int64, value string) {
		m := put(plainKey(engine.Shards.Clustering), value)
		m.Timestamp = timestamp
		write(t, e, engine.Shards, low, m)
	}
	look := func(value string) {
		requireRows(t, rows, scanPartition(t, e, engine.Stage, stage), "stage")
		requireRows(t, ring, scanPartition(t, e, engine.R5m, plainKey(engine.R5m.Partition)), "r5m")
		require.Equal(t, drops, len(scanPartition(t, e, engine.Raw, raw)) == 0, "raw")
		requireRows(t, []row{{plainKey(engine.Shards.Clustering), value}},
			scanPartition(t, e, engine.Shards, low), "low")
		requireRows(t, []row{{plainKey(engine.Store.Clustering), "set"}},
			scanPartition(t, e, engine.Store, store), "store")
	}
	mark(20, "newer")
	write(t, e, engine.Stage, stage, remove(rows[7].key))
	rows = append(rows[:7:7], rows[8:]...)
	require.NoError(t, e.Drop(ctx, engine.Raw, raw[:2]))
	ok, _, err := e.CompareAndSet(ctx, engine.Store, store, plainKey(engine.Store.Clustering), nil, []byte("set"))
	require.NoError(t, err)
	require.True(t, ok)
	look("newer")

	e = reopen(t, e)
	look("newer")
	mark(10, "older")
	look("newer")
	e = reopen(t, e)
	look("newer")
	mark(30, "newest")
	look("newest")
	require.NoError(t, e.Close())
}

func testClosed(t *testing.T, e engine.Engine) {
	ctx := context.Background()
	require.NoError(t, e.Write(ctx, []engine.Batch{plainBatch(engine.Stage)}))
	seq := e.Scan(ctx, engine.Range{Table: engine.Stage, Partition: plainKey(engine.Stage.Partition)})
	require.NoError(t, e.Close())
	require.Error(t, e.Close(), "closing twice")
	require.ErrorIs(t, e.Write(ctx, []engine.Batch{plainBatch(engine.Stage)}), engine.ErrClosed)
	require.ErrorIs(t, e.Drop(ctx, engine.Raw, nil), engine.ErrClosed)
	_, _, err := e.CompareAndSet(ctx, engine.Store, plainKey(engine.Store.Partition),
		plainKey(engine.Store.Clustering), nil, []byte("x"))
	require.ErrorIs(t, err, engine.ErrClosed)
	n := 0
	for _, err := range seq {
		require.ErrorIs(t, err, engine.ErrClosed)
		n++
	}
	require.Equal(t, 1, n)
}

// testCloseAtOnce checks that calls during Close succeed or return ErrClosed.
func testCloseAtOnce(t *testing.T, e engine.Engine) {
	var workers sync.WaitGroup
	errs := make(chan error, 8)
	begun := make(chan struct{}, 8)
	for w := range 8 {
		workers.Go(func() {
			for i := 0; ; i++ {
				err := writeAndLook(e, plainKey(engine.Stage.Partition), engine.Text(fmt.Sprintf("%08d%08d", w, i)), 4)
				if err != nil {
					errs <- err
					return
				}
				if i == 0 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-begun
	}
	require.NoError(t, e.Close())
	workers.Wait()
	close(errs)
	for err := range errs {
		require.True(t, errors.Is(err, engine.ErrClosed), "%v", err)
	}
}
