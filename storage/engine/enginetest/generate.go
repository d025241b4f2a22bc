package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// generator generates histories that are similar to the operations of a store. A history uses few partitions, so that
// operations often affect the same rows. In tables that don't converge, a key has one content and one timestamp
// forever, and isn't written again after a delete.
type generator struct {
	rng     *rand.Rand
	special []string // the verbs between operations that the engine under test supports
	steps   []step
	deleted map[string]bool
}

// generate returns a history of about n steps.
func generate(rng *rand.Rand, n int, special []string) []step {
	g := &generator{rng: rng, special: special, deleted: map[string]bool{}}
	for len(g.steps) < n {
		switch p := rng.IntN(100); {
		case p < 50:
			g.write()
		case p < 88:
			g.scan()
		case p < 92:
			g.drop()
		case p < 97:
			g.cas()
		case len(special) > 0:
			g.steps = append(g.steps, step{verb: pick(rng, special)})
		}
	}
	return g.steps
}

// key returns a random key. It picks each field from few values, so that many keys are equal, neighbors, or prefixes of
// each other.
func (g *generator) key(fields []engine.Field) engine.Key {
	key := make(engine.Key, len(fields))
	for i, f := range fields {
		switch f.Kind {
		case engine.KindInt:
			key[i] = engine.Int(pick(g.rng, []int64{-121, -1, 0, 1, 2, 120}))
		case engine.KindText:
			key[i] = engine.Text(pick(g.rng, []string{"", "a", "a\x00", "a\x01", "b"}))
		case engine.KindID:
			key[i] = engine.Text(pick(g.rng, edgeIDs()[:4]))
		}
	}
	return key
}

// partition returns one of a few partition keys of a table.
func (g *generator) partition(t *engine.Table) engine.Key {
	key := make(engine.Key, len(t.Partition))
	for i, f := range t.Partition {
		if f.Kind == engine.KindInt {
			key[i] = engine.Int(pick(g.rng, []int64{-1, 0}))
		} else {
			key[i] = engine.Text(pick(g.rng, []string{"t", "t\x00"}))
		}
	}
	return key
}

func (g *generator) write() {
	for range 1 + g.rng.IntN(4) {
		table := pick(g.rng, writable())
		partition := g.partition(table)
		for range 1 + g.rng.IntN(8) {
			s := g.mutation(table, partition)
			if s.verb != "" {
				g.steps = append(g.steps, s)
			}
		}
	}
	g.steps = append(g.steps, step{verb: verbCommit})
}

func (g *generator) mutation(table *engine.Table, partition engine.Key) step {
	if g.rng.IntN(25) == 0 {
		return g.clear(table, partition)
	}
	s := step{verb: verbPut, table: table, key: partition, from: g.key(table.Clustering)}
	if table.Converging {
		s.timestamp = g.rng.Int64N(7) - 3
		s.value = []byte(strings.Repeat(pick(g.rng, []string{"", "a", "b", "\xff"}), g.rng.IntN(40)))
		return s
	}
	s.timestamp = 100
	last := table.Clustering[len(table.Clustering)-1]
	switch p := g.rng.IntN(10); {
	case p < 7:
		if g.deleted[g.name(s)] {
			return step{}
		}
		s.value = g.content(s)
	case p < 9 || last.Kind != engine.KindInt:
		s.verb = verbDelete
		g.deleted[g.name(s)] = true
	default:
		s.verb = verbDeleteRange
		g.deleteRange(&s)
	}
	return s
}

// clear returns a step that removes rows with a prefix, or between two keys or prefixes. Rows of a table that doesn't
// converge may be written again with the same content.
func (g *generator) clear(table *engine.Table, partition engine.Key) step {
	bound := func() engine.Key { return g.key(table.Clustering[:1+g.rng.IntN(len(table.Clustering))]) }
	s := step{verb: verbClear, table: table, key: partition, from: bound()}
	s.to = s.from
	if g.rng.IntN(2) == 0 {
		s.to = bound()
	}
	if engine.Compare(s.from, s.to) > 0 {
		s.from, s.to = s.to, s.from
	}
	return s
}

// name returns a text that identifies the row of a step.
func (g *generator) name(s step) string {
	return s.table.Name + " " + formatKey(s.key) + " " + formatKey(s.from)
}

// content returns the content of the step's key. It is the same at each call.
func (g *generator) content(s step) []byte {
	name := g.name(s)
	size := 0
	for _, c := range []byte(name) {
		size = (size*31 + int(c)) % 3000
	}
	return []byte(strings.Repeat(name, 1+size/len(name)))[:size]
}

func (g *generator) deleteRange(s *step) {
	last := len(s.from) - 1
	s.to = slices.Clone(s.from)
	s.to[last].Int += pick(g.rng, []int64{0, 1, 3, 250})
	for n := s.from[last].Int; n <= s.to[last].Int; n++ {
		row := *s
		row.from = slices.Clone(s.from)
		row.from[last].Int = n
		g.deleted[g.name(row)] = true
	}
}

func (g *generator) scan() {
	table := pick(g.rng, engine.Tables)
	s := step{verb: verbScan, table: table, key: g.partition(table), keysOnly: g.rng.IntN(5) == 0}
	if g.rng.IntN(2) == 0 {
		s.from = g.key(table.Clustering[:g.rng.IntN(len(table.Clustering)+1)])
	}
	if g.rng.IntN(2) == 0 {
		s.to = g.key(table.Clustering[:g.rng.IntN(len(table.Clustering)+1)])
	}
	if g.rng.IntN(4) == 0 {
		s.limit = 1 + g.rng.IntN(5)
	}
	g.steps = append(g.steps, s)
}

func (g *generator) drop() {
	table := pick(g.rng, engine.Tables)
	partition := g.partition(table)
	g.steps = append(g.steps, step{verb: verbDrop, table: table, key: partition[:1+g.rng.IntN(len(partition))]})
}

func (g *generator) cas() {
	table := engine.Store
	s := step{verb: verbCAS, table: table, key: g.partition(table), from: g.key(table.Clustering)}
	s.value = fmt.Append(nil, g.rng.IntN(3))
	if g.rng.IntN(3) > 0 {
		s.old = fmt.Append(nil, g.rng.IntN(3))
	}
	g.steps = append(g.steps, s)
}
