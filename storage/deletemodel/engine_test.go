package deletemodel

import "slices"

// table is a table of the engine. The value with the highest timestamp wins. At equal timestamps a removal wins, or
// else the larger value.
type table[K comparable, V any] struct {
	rows []row[K, V]
	// larger compares values with equal timestamps. Operations must not depend on this order, which is arbitrary in a
	// real engine.
	larger func(a, b V) bool
}

type row[K comparable, V any] struct {
	key       K
	value     V
	timestamp int
	removed   bool
	// written is false if the row was removed without having been written.
	written bool
	// removedAt is the time of the removal, in ticks.
	removedAt int
}

func (t *table[K, V]) find(key K) *row[K, V] {
	for i := range t.rows {
		if t.rows[i].key == key {
			return &t.rows[i]
		}
	}
	return nil
}

func (t *table[K, V]) put(key K, timestamp int, value V) {
	r := t.find(key)
	switch {
	case r == nil:
		t.rows = append(t.rows, row[K, V]{key: key, value: value, timestamp: timestamp, written: true})
	case timestamp < r.timestamp || timestamp == r.timestamp && (r.removed || !t.larger(value, r.value)):
	default:
		*r = row[K, V]{key: key, value: value, timestamp: timestamp, written: true}
	}
}

func (t *table[K, V]) remove(key K, timestamp, now int) {
	r := t.find(key)
	if r == nil {
		t.rows = append(t.rows, row[K, V]{key: key})
		r = &t.rows[len(t.rows)-1]
	}
	if timestamp >= r.timestamp {
		r.timestamp, r.removed, r.removedAt = timestamp, true, now
	}
}

// get returns the value of a row.
func (t *table[K, V]) get(key K) (value V, ok bool) {
	if r := t.find(key); r != nil && !r.removed {
		return r.value, true
	}
	return value, false
}

// each calls f with the rows that aren't removed.
func (t *table[K, V]) each(f func(key K, value V)) {
	for i := range t.rows {
		if !t.rows[i].removed {
			f(t.rows[i].key, t.rows[i].value)
		}
	}
}

func (t *table[K, V]) has(f func(key K) bool) bool {
	return slices.ContainsFunc(t.rows, func(r row[K, V]) bool { return !r.removed && f(r.key) })
}

func (t *table[K, V]) clear() { t.rows = nil }

func (t *table[K, V]) copyOf() table[K, V] {
	return table[K, V]{rows: slices.Clone(t.rows), larger: t.larger}
}

// bringBack restores a removed row, like a replica that has missed the removal while the other replicas have purged it.
func (t *table[K, V]) bringBack(i, now int) bool {
	r := &t.rows[i]
	if !r.removed || !r.written || now <= r.removedAt {
		return false
	}
	r.removed = false
	return true
}
