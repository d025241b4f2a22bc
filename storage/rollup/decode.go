package rollup

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
)

// Decode appends the buckets of a chunk to into, with the columns that want names; those it doesn't name are
// left as they are. What into has already was read with the same want, and ends before. It allocates nothing
// for floats where into has the capacity. After an error, which is ErrCorrupt, into is as it was.
func Decode(b []byte, want Columns, into *Buckets) error {
	var e envelope
	if err := e.parse(b); err != nil {
		return err
	}
	payload, sum := b[:len(b)-checksumSize], b[len(b)-checksumSize:]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return fmt.Errorf("%w: checksum doesn't match", ErrCorrupt)
	}
	before := *into
	if err := decode(&e, want, into); err != nil {
		*into = before
		return err
	}
	return nil
}

// smallChunk is up to how many buckets no memory is needed besides the stack's.
const smallChunk = 64

// decoder reads the columns of one chunk.
type decoder struct {
	e    *envelope
	into *Buckets
	at   int // where its buckets begin
	n    int // how many they are
	// parts say which columns each bucket takes part in; nil: all in all.
	parts        []part
	full, floats int // how many take part
	l            lanes
	count        []int64 // of floats
}

func decode(e *envelope, want Columns, into *Buckets) error {
	d := decoder{e: e, into: into, at: len(into.End), n: e.Count, full: e.Count, floats: e.Count}
	if err := d.ends(); err != nil {
		return err
	}
	if err := d.flags(); err != nil {
		return err
	}
	var small [4 * smallChunk]int64
	space := small[:]
	if d.n > smallChunk {
		space = make([]int64, 4*d.n)
	}
	size := len(space) / 4
	if want&(ColumnCount|ColumnSum) != 0 {
		d.count = space[:d.full]
		if err := d.counts(want); err != nil {
			return err
		}
	}
	if err := d.times(want); err != nil {
		return err
	}
	d.l.first, d.l.last = space[size:][:d.floats], space[2*size:][:d.floats]
	if err := d.values(want, space[3*size:][:d.floats]); err != nil {
		return err
	}
	if err := d.counters(want, space[3*size:][:d.full]); err != nil {
		return err
	}
	if want&(ColumnFirst|ColumnLast|ColumnCorrection) != 0 {
		return d.histograms(want)
	}
	return nil
}

// tail makes column longer by n entries and returns those.
func tail[E any](column *[]E, n int) []E {
	x := slices.Grow(*column, n)
	x = x[:len(x)+n]
	*column = x
	return x[len(x)-n:]
}

// expand moves the k entries that x begins with to the buckets that take part, and leaves zeros elsewhere.
func expand[E any](x []E, parts []part, k int, which part) {
	var zero E
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i]&which != 0 {
			k--
			x[i] = x[k]
		} else {
			x[i] = zero
		}
	}
}

func (d *decoder) expand(x []int64, k int, which part) {
	if d.parts != nil {
		expand(x, d.parts, k, which)
	}
}

// ends appends the ends and starts of buckets.
func (d *decoder) ends() error {
	start, end := tail(&d.into.Start, d.n), tail(&d.into.End, d.n)
	width, first := d.e.Width, d.e.MinEnd
	if d.e.span == d.n {
		for i := range end {
			start[i], end[i] = first-width, first
			first += width
		}
		return nil
	}
	if err := decodeInts(d.e.column(columnEnds), end, "ends"); err != nil {
		return err
	}
	before := int64(-1)
	for i, k := range end {
		if k <= before || k >= int64(d.e.span) {
			return fmt.Errorf("%w: ends are not in order", ErrCorrupt)
		}
		before = k
		end[i] = first + k*width
		start[i] = end[i] - width
	}
	if end[0] != first || end[d.n-1] != d.e.MaxEnd {
		return fmt.Errorf("%w: ends from %d to %d", ErrCorrupt, end[0], end[d.n-1])
	}
	return nil
}

// flags appends flags, and finds out which buckets take part in what.
func (d *decoder) flags() error {
	flags := tail(&d.into.Flags, d.n)
	if !d.e.has(columnFlags) {
		clear(flags)
		return nil
	}
	x := make([]int64, d.n)
	if err := decodeInts(d.e.column(columnFlags), x, "flags"); err != nil {
		return err
	}
	d.parts = make([]part, d.n)
	d.full, d.floats = 0, 0
	for i, f := range x {
		if f < 0 || f >= 2*storedEmpty || f&storedEmpty != 0 && Flags(f)&HasHistograms != 0 {
			return fmt.Errorf("%w: flags %#x", ErrCorrupt, f)
		}
		flags[i] = Flags(f &^ storedEmpty)
		if f&storedEmpty != 0 {
			continue
		}
		d.parts[i] = full
		d.full++
		if flags[i]&HasHistograms == 0 {
			d.parts[i] |= ofFloats
			d.floats++
		}
	}
	return nil
}

// counts fills count, and appends to the column if that is wanted.
func (d *decoder) counts(want Columns) error {
	if err := decodeInts(d.e.column(columnCount), d.count, "counts"); err != nil {
		return err
	}
	for _, c := range d.count {
		if c <= 0 || c > math.MaxUint32 {
			return fmt.Errorf("%w: count of %d", ErrCorrupt, c)
		}
	}
	if want&ColumnCount != 0 {
		d.narrow(tail(&d.into.Count, d.n), d.count)
	}
	if d.floats == d.full {
		return nil
	}
	k := 0
	for i, at := 0, 0; i < d.n; i++ {
		if d.parts[i]&ofFloats != 0 {
			d.count[k] = d.count[at]
			k++
		}
		if d.parts[i]&full != 0 {
			at++
		}
	}
	d.count = d.count[:k]
	return nil
}

// narrow fills a column with numbers of buckets that have samples.
func (d *decoder) narrow(column []uint32, x []int64) {
	for i, v := range x {
		column[i] = uint32(v)
	}
	if d.parts != nil {
		expand(column, d.parts, d.full, full)
	}
}

// times appends timestamps and start timestamps.
func (d *decoder) times(want Columns) error {
	if want&ColumnFirst != 0 {
		t := tail(&d.into.FirstT, d.n)
		if err := d.firstTimes(t[:d.full]); err != nil {
			return err
		}
		d.expand(t, d.full, full)
	}
	if want&ColumnLast != 0 {
		t := tail(&d.into.LastT, d.n)
		if err := d.lastTimes(t[:d.full]); err != nil {
			return err
		}
		d.expand(t, d.full, full)
	}
	if want&ColumnStarts != 0 {
		return d.starts()
	}
	return nil
}

// firstTimes fills t with the first timestamps of buckets that have samples.
func (d *decoder) firstTimes(t []int64) error {
	if err := d.within(columnFirstT, t, 1, "first timestamps"); err != nil {
		return err
	}
	k := 0
	for i, start := range d.into.Start[d.at:] {
		if d.parts == nil || d.parts[i]&full != 0 {
			t[k] += start
			k++
		}
	}
	return nil
}

// lastTimes fills t with the last timestamps of buckets that have samples.
func (d *decoder) lastTimes(t []int64) error {
	if err := d.within(columnLastT, t, 0, "last timestamps"); err != nil {
		return err
	}
	k := 0
	for i, end := range d.into.End[d.at:] {
		if d.parts == nil || d.parts[i]&full != 0 {
			t[k] = end - t[k]
			k++
		}
	}
	return nil
}

// within fills x with a column of distances from least to below that by a width.
func (d *decoder) within(id int, x []int64, least int64, what string) error {
	if err := decodeInts(d.e.column(id), x, what); err != nil {
		return err
	}
	for _, v := range x {
		if v < least || v-least >= d.e.Width {
			return fmt.Errorf("%w: %s outside their bucket", ErrCorrupt, what)
		}
	}
	return nil
}

// values appends the columns of floats but for corrections.
func (d *decoder) values(want Columns, temp []int64) error {
	const ofLanes = ColumnFirst | ColumnLast | ColumnMin | ColumnMax | ColumnSum
	if want&ofLanes == 0 {
		return nil
	}
	if d.floats > 0 {
		if err := d.l.decodeEnds(d.e.column(columnFirst), d.e.column(columnLast)); err != nil {
			return err
		}
	}
	if want&ColumnFirst != 0 {
		d.l.floats(d.placed(&d.into.First), d.l.first)
		d.place(d.into.First)
	}
	if want&ColumnLast != 0 {
		d.l.floats(d.placed(&d.into.Last), d.l.last)
		d.place(d.into.Last)
	}
	if want&ColumnMin != 0 {
		if err := d.least(d.placed(&d.into.Min), temp); err != nil {
			return err
		}
		d.place(d.into.Min)
	}
	if want&ColumnMax != 0 {
		if err := d.greatest(d.placed(&d.into.Max), temp); err != nil {
			return err
		}
		d.place(d.into.Max)
	}
	if want&ColumnSum == 0 {
		return nil
	}
	if err := d.sums(d.placed(&d.into.Sum), temp); err != nil {
		return err
	}
	d.place(d.into.Sum)
	if err := d.lows(d.placed(&d.into.SumLow), temp); err != nil {
		return err
	}
	d.place(d.into.SumLow)
	return nil
}

// placed makes a column longer and returns where as many entries go as buckets have floats.
func (d *decoder) placed(column *[]float64) []float64 { return tail(column, d.n)[:d.floats] }

// place moves what was put there to the buckets of floats.
func (d *decoder) place(column []float64) {
	if d.parts != nil {
		expand(column[len(column)-d.n:], d.parts, d.floats, ofFloats)
	}
}

// counters appends resets, changes and corrections.
func (d *decoder) counters(want Columns, temp []int64) error {
	if want&ColumnChanges != 0 {
		if err := d.numbers(columnChanges, &d.into.Changes, temp, "changes"); err != nil {
			return err
		}
	}
	if want&ColumnCorrection != 0 {
		corrections := tail(&d.into.Correction, d.n)
		clear(corrections)
		if d.e.has(columnCorrection) {
			if err := d.corrections(corrections, temp); err != nil {
				return err
			}
		}
	}
	if want&ColumnResets != 0 {
		return d.numbers(columnResets, &d.into.Resets, temp, "resets")
	}
	return nil
}

// numbers appends to column what a column of integers says of buckets with samples.
func (d *decoder) numbers(id int, column *[]uint32, temp []int64, what string) error {
	x := tail(column, d.n)
	if !d.e.has(id) {
		clear(x)
		return nil
	}
	if err := d.readNumbers(id, temp, what); err != nil {
		return err
	}
	d.narrow(x, temp)
	return nil
}

func (d *decoder) readNumbers(id int, x []int64, what string) error {
	if err := decodeInts(d.e.column(id), x, what); err != nil {
		return err
	}
	for _, v := range x {
		if v < 0 || v > math.MaxUint32 {
			return fmt.Errorf("%w: %d %s", ErrCorrupt, v, what)
		}
	}
	return nil
}

// corrections fills v, all 0, with the corrections of buckets of floats that have resets.
func (d *decoder) corrections(v []float64, temp []int64) error {
	if err := d.readNumbers(columnResets, temp, "resets"); err != nil {
		return err
	}
	k, at := 0, 0 // temp becomes where the corrections belong
	for i := range v {
		p := full | ofFloats
		if d.parts != nil {
			p = d.parts[i]
		}
		if p&full == 0 {
			continue
		}
		resets := temp[at]
		at++
		if resets > 0 && p&ofFloats != 0 {
			temp[k] = int64(i)
			k++
		}
	}
	if err := decodeValues(d.e.column(columnCorrection), v[:k], "corrections"); err != nil {
		return err
	}
	for k--; k >= 0; k-- {
		x := v[k]
		v[k] = 0
		v[temp[k]] = x
	}
	return nil
}

// decodeValues fills v, which is not empty, from a column of values.
func decodeValues(b []byte, v []float64, what string) error {
	if len(v) == 0 {
		return fmt.Errorf("%w: %s of no buckets", ErrCorrupt, what)
	}
	rest, err := chunk.DecodeValues(b, v)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, what, err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %s are followed by %d bytes", ErrCorrupt, what, len(rest))
	}
	return nil
}
