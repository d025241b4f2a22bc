package deletemodel

import "math/bits"

// The model has one window of each resolution, and in it one day with two slots. A slot has four times: two buckets of
// 5m, or one bucket of 1h.
const (
	slotCount   = 2
	slotTimes   = 4
	timeCount   = slotCount * slotTimes
	seriesCount = 3
	tenantCount = 2
)

type resolution int

const (
	raw resolution = iota
	fine
	hourly
	resolutionCount
)

func tenantOf(series int) int { return series / 2 }

// samples is the set of the times at which a series has samples.
type samples uint8

const allTimes samples = 1<<timeCount - 1

func slotMask(slot int) samples { return (1<<slotTimes - 1) << (slot * slotTimes) }

func slotOf(time int) int { return time / slotTimes }

// buckets returns the times of each bucket of a resolution.
func (res resolution) buckets() []samples {
	if res == fine {
		return []samples{0x03, 0x0c, 0x30, 0xc0}
	}
	return []samples{0x0f, 0xf0}
}

func (s samples) first() int { return bits.TrailingZeros8(uint8(s)) }
func (s samples) last() int  { return bits.Len8(uint8(s)) - 1 }

// content contains the samples of all series.
type content [seriesCount]samples

func (c *content) add(o content) {
	for i := range c {
		c[i] |= o[i]
	}
}

func (c content) isEmpty() bool { return c == content{} }

// inSlot returns the samples in a slot.
func (c content) inSlot(slot int) content {
	for i := range c {
		c[i] &= slotMask(slot)
	}
	return c
}

// tally counts the samples of each time in rollups, with four bits per time.
type tally uint32

func tallyOf(s samples) (t tally) {
	for ; s != 0; s &= s - 1 {
		t |= 1 << (4 * s.first())
	}
	return t
}

// times returns the times with samples.
func (t tally) times() (s samples) {
	for i := range timeCount {
		if t>>(4*i)&15 != 0 {
			s |= 1 << i
		}
	}
	return s
}

// keep returns the counts of the times in s.
func (t tally) keep(s samples) tally { return t & (tallyOf(s) * 15) }

// isDoubled reports whether a sample is counted more than once.
func (t tally) isDoubled() bool { return t&^0x11111111 != 0 }

// buckets is the content of a rollup chunk. flagged contains the times of buckets that include deleted samples.
type buckets struct {
	counts  tally
	flagged samples
}

func (b buckets) keep(s samples) buckets { return buckets{b.counts.keep(s), b.flagged & s} }

func (b buckets) isLarger(o buckets) bool {
	return b.counts > o.counts || b.counts == o.counts && b.flagged > o.flagged
}

// extend adds samples to stored buckets. A stored bucket accepts new samples only if all of them are older, or all
// newer, than the samples it includes. left contains the times of rejected samples.
func (b buckets) extend(added tally, res resolution) (all buckets, left samples) {
	all = b
	for _, in := range res.buckets() {
		have, add := b.counts.keep(in).times(), added.keep(in).times()
		switch {
		case add == 0:
		case have == 0 || add.last() < have.first() || add.first() > have.last():
			all.counts += added.keep(in)
		default:
			left |= add
		}
	}
	return all, left
}

// trim removes the buckets whose samples are all deleted, and flags the buckets with some deleted samples. due returns
// the deletes to apply in a slot.
func (b buckets) trim(res resolution, due func(slot int) []deletion) (trimmed buckets, changed bool) {
	trimmed = b
	for _, in := range res.buckets() {
		have := b.counts.keep(in).times()
		if have == 0 {
			continue
		}
		for _, d := range due(slotOf(in.first())) {
			switch {
			case have&^d.times == 0:
				trimmed = trimmed.keep(^in)
			case d.times.first() <= have.last() && have.first() <= d.times.last() && trimmed.flagged&in == 0:
				trimmed.flagged |= in
			}
		}
	}
	return trimmed, trimmed != b
}
