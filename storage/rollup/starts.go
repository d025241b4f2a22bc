package rollup

import "fmt"

// The columns of start timestamps begin with a byte for the base of the run after it:
//
//	0  first start timestamps: the start of the chunk's first bucket; last ones: the bucket's first one
//	1  the sample's own timestamp
const (
	startsFar = 0
	startsOwn = 1
)

// starts writes the columns of start timestamps.
func (e *encoder) starts(b *Buckets, parts []part) {
	first, last := gather(b.FirstST, parts, full), gather(b.LastST, parts, full)
	if allZero(first) && allZero(last) {
		return
	}
	base := make([]int64, len(first))
	for i := range base {
		base[i] = b.Start[0]
	}
	if !allZero(first) {
		e.relative(columnFirstST, first, base, gather(b.FirstT, parts, full))
	}
	if !allZero(e.minus(last, first)) {
		e.relative(columnLastST, last, first, gather(b.LastT, parts, full))
	}
}

// relative writes x as it is shorter: relative to far, or to own.
func (e *encoder) relative(id int, x, far, own []int64) {
	from := len(e.body)
	e.body = appendInts(append(e.body, startsFar), e.minus(x, far))
	middle := len(e.body)
	e.body = appendInts(append(e.body, startsOwn), e.minus(x, own))
	if middle-from <= len(e.body)-middle {
		e.body = e.body[:middle]
	} else {
		e.body = append(e.body[:from], e.body[middle:]...)
	}
	e.put(id, from)
}

func (e *encoder) minus(x, y []int64) []int64 {
	z := e.take(len(x))
	for i, v := range x {
		z[i] = v - y[i]
	}
	return z
}

// starts appends the columns of start timestamps.
func (d *decoder) starts() error {
	into := d.into
	if !d.e.has(columnFirstST) && !d.e.has(columnLastST) {
		if into.FirstST != nil {
			clear(tail(&into.FirstST, d.n))
			clear(tail(&into.LastST, d.n))
		}
		return nil
	}
	for _, column := range []*[]int64{&into.FirstST, &into.LastST} {
		clear(tail(column, d.at-len(*column))) // those of buckets before
	}
	first, last := tail(&into.FirstST, d.n), tail(&into.LastST, d.n)
	far := make([]int64, d.full)
	for i := range far {
		far[i] = into.Start[d.at]
	}
	clear(first)
	if err := d.relative(columnFirstST, first[:d.full], far); err != nil {
		return err
	}
	copy(last, first)
	if err := d.relative(columnLastST, last[:d.full], first); err != nil {
		return err
	}
	d.expand(first, d.full, full)
	d.expand(last, d.full, full)
	return nil
}

// relative fills x from a column of start timestamps; where that isn't there, x stays as it is.
func (d *decoder) relative(id int, x, far []int64) error {
	b := d.e.column(id)
	if len(b) == 0 {
		return nil
	}
	base := far
	switch b[0] {
	case startsFar:
	case startsOwn:
		base = make([]int64, d.full)
		if err := d.ownTimes(id, base); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: start timestamps of unknown encoding %d", ErrCorrupt, b[0])
	}
	if err := decodeInts(b[1:], x, "start timestamps"); err != nil {
		return err
	}
	for i := range x {
		x[i] += base[i]
	}
	return nil
}

// ownTimes fills t with the timestamps that a column of start timestamps may be relative to.
func (d *decoder) ownTimes(id int, t []int64) error {
	if id == columnFirstST {
		return d.firstTimes(t)
	}
	return d.lastTimes(t)
}
