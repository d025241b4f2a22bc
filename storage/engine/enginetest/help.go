package enginetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// someTime is a timestamp in microseconds, for writes whose timestamp doesn't matter.
const someTime = 1_700_000_000_000_000

// row is a row that was written or read. It shares no memory with the engine.
type row struct {
	key   engine.Key
	value string
}

func (r row) String() string { return fmt.Sprintf("%s=%.20q", formatKey(r.key), r.value) }

// scan returns all rows of a range.
func scan(t testing.TB, e engine.Engine, r engine.Range) []row {
	t.Helper()
	rows, err := tryScan(e, r)
	require.NoError(t, err)
	return rows
}

func tryScan(e engine.Engine, r engine.Range) ([]row, error) {
	rows := []row{}
	for read, err := range e.Scan(context.Background(), r) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{key: read.Clustering.Clone(), value: string(read.Value)})
	}
	return rows, nil
}

func scanPartition(t testing.TB, e engine.Engine, table *engine.Table, partition engine.Key) []row {
	t.Helper()
	return scan(t, e, engine.Range{Table: table, Partition: partition})
}

func write(t testing.TB, e engine.Engine, table *engine.Table, partition engine.Key, mutations ...engine.Mutation) {
	t.Helper()
	require.NoError(t, e.Write(context.Background(),
		[]engine.Batch{{Table: table, Partition: partition, Mutations: mutations}}))
}

func put(key engine.Key, value string) engine.Mutation {
	return engine.Mutation{Op: engine.Put, Clustering: key, Timestamp: someTime, Value: []byte(value)}
}

func remove(key engine.Key) engine.Mutation {
	return engine.Mutation{Op: engine.Delete, Clustering: key, Timestamp: someTime}
}

func removeRange(from, to engine.Key) engine.Mutation {
	return engine.Mutation{Op: engine.DeleteRange, Clustering: from, To: to, Timestamp: someTime}
}

func clearRange(from, to engine.Key) engine.Mutation {
	return engine.Mutation{Op: engine.Clear, Clustering: from, To: to}
}

// takesClear reports whether an engine supports Clear.
func takesClear(e engine.Engine) bool {
	c, ok := e.(engine.Clearing)
	return ok && c.TakesClear()
}

// id returns a KindID value whose bytes are all n.
func id(n byte) engine.Value { return engine.Text(strings.Repeat(string([]byte{n}), engine.IDLen)) }

// edgeInts returns values for which encodings of keys are likely to be wrong, in order.
func edgeInts() []int64 {
	return []int64{math.MinInt64, math.MinInt64 + 1, -1 << 40, -65537, -65536, -257, -256, -129, -128, -121, -120, -1,
		0, 1, 119, 120, 127, 128, 255, 256, 65535, 65536, 1 << 40, math.MaxInt64 - 1, math.MaxInt64}
}

func edgeTexts() []string {
	return []string{"", "\x00", "\x00\x00", "\x00\x01", "\x00a", "\x01", "\x01\x00", "\x01\x01", "\x02",
		"a", "a\x00", "a\x00\x00",
		"a\x00b", "a\x01", "a\x01b", "a\x02", "a!", "aa", "b", "\u007f", "ÿ", "\ufffd", "\U0010ffff"}
}

func edgeIDs() []string {
	var ids []string
	for _, n := range []byte{0x00, 0x01, 0x7f, 0x80, 0xff} {
		ids = append(ids, strings.Repeat("\x00", engine.IDLen-1)+string([]byte{n}), id(n).Text)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// randomKey returns a key with a random edge value in each field.
func randomKey(rng *rand.Rand, fields []engine.Field) engine.Key {
	key := make(engine.Key, len(fields))
	for i, f := range fields {
		switch f.Kind {
		case engine.KindInt:
			key[i] = engine.Int(pick(rng, edgeInts()))
		case engine.KindText:
			key[i] = engine.Text(pick(rng, edgeTexts()))
		case engine.KindID:
			key[i] = engine.Text(pick(rng, edgeIDs()))
		}
	}
	return key
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// plainKey returns a key that is valid for these fields.
func plainKey(fields []engine.Field) engine.Key {
	key := make(engine.Key, len(fields))
	for i, f := range fields {
		switch f.Kind {
		case engine.KindInt:
			key[i] = engine.Int(7)
		case engine.KindText:
			key[i] = engine.Text("text")
		case engine.KindID:
			key[i] = id(7)
		}
	}
	return key
}

// requireRows fails with a message that contains both lists unless they are equal.
func requireRows(t testing.TB, want, got []row, message string, args ...any) {
	t.Helper()
	if slices.EqualFunc(want, got, func(a, b row) bool {
		return engine.Compare(a.key, b.key) == 0 && len(a.key) == len(b.key) && a.value == b.value
	}) {
		return
	}
	require.Fail(t, "other rows", "%s\nwant %d: %s\ngot  %d: %s", fmt.Sprintf(message, args...), len(want),
		shorten(want), len(got), shorten(got))
}

func shorten(rows []row) string {
	if len(rows) > 30 {
		return fmt.Sprintf("%v …", rows[:30])
	}
	return fmt.Sprint(rows)
}
