package format

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Period determines how time and series are partitioned from an instant on. The first period is written when a store is
// created. SetPeriod adds later periods.
type Period struct {
	// SlotMS is the width of a slot in milliseconds: a multiple of an hour, and a divisor of RawWindowMS.
	SlotMS int64 `json:"slot_ms"`
	// RawWindowMS is the width of a window of raw rows in milliseconds.
	RawWindowMS int64 `json:"raw_window_ms"`
	// Partitions is the number of partitions of series: a multiple of the previous period's.
	Partitions int `json:"partitions"`

	// FromMS is the start of the period in milliseconds: the period applies to later timestamps. FirstSlot and
	// FirstWindow are the numbers of the slot and the window that start then. The numbering continues from one period
	// to the next, so that a number identifies one time range forever. In the first period all three are 0: it has no
	// start, and slot 0 and window 0 start at time 0.
	FromMS      int64 `json:"from_ms,omitempty"`
	FirstSlot   int64 `json:"first_slot,omitempty"`
	FirstWindow int64 `json:"first_window,omitempty"`
}

// MaxPartitions is the max number of partitions in any period, MaxPeriods the max number of periods, and MaxSlotMS the
// max width of a slot.
const (
	MaxPartitions = 4096
	MaxPeriods    = 64
	MaxSlotMS     = DayMS
)

// Check returns an error if the widths or the number of partitions are invalid.
func (p Period) Check() error {
	switch {
	case p.SlotMS < HourMS || p.SlotMS%HourMS != 0:
		return fmt.Errorf("a slot of %v is not a multiple of 1h", time.Duration(p.SlotMS)*time.Millisecond)
	case p.SlotMS > MaxSlotMS:
		return fmt.Errorf("a slot of %v is longer than 24h", time.Duration(p.SlotMS)*time.Millisecond)
	case p.RawWindowMS <= 0 || p.RawWindowMS%DayMS != 0 || p.RawWindowMS%p.SlotMS != 0:
		return fmt.Errorf("a window of %v is not a multiple of 24h and of the slot",
			time.Duration(p.RawWindowMS)*time.Millisecond)
	case p.Partitions < 1 || p.Partitions > MaxPartitions:
		return fmt.Errorf("%d partitions; must be 1 to %d", p.Partitions, MaxPartitions)
	}
	return nil
}

// String returns a description of the period.
func (p Period) String() string {
	return fmt.Sprintf("slots of %dh, windows of %dh, %d partitions", p.SlotMS/HourMS,
		p.RawWindowMS/HourMS, p.Partitions)
}

// SameCut reports whether two periods differ only in their start.
func (p Period) SameCut(o Period) bool {
	return p.SlotMS == o.SlotMS && p.RawWindowMS == o.RawWindowMS && p.Partitions == o.Partitions
}

// Periods are the periods of a store, at least one, ordered by their start. They may be used concurrently. Set adds
// periods while a store is in use.
//
//	t:      ────────────── From ──────────────►
//	slots:  … | 9 | 10 | 11 |  12  |  13  | …
type Periods struct{ list atomic.Pointer[[]Period] }

// NewPeriods returns periods. list must be ordered by start and have at least one.
func NewPeriods(list ...Period) *Periods {
	p := &Periods{}
	p.Set(list)
	return p
}

// Set replaces all periods. list must not be modified afterwards.
func (p *Periods) Set(list []Period) { p.list.Store(&list) }

// All returns the periods. They must not be modified.
func (p *Periods) All() []Period { return *p.list.Load() }

// PeriodAt returns the period of a timestamp in milliseconds.
func (p *Periods) PeriodAt(t int64) *Period {
	return p.lastBegun(func(x *Period) bool { return x.FromMS < t })
}

// OfSlot returns the period of a slot.
func (p *Periods) OfSlot(slot int64) *Period {
	return p.lastBegun(func(x *Period) bool { return x.FirstSlot <= slot })
}

// OfRawWindow returns the period of a window of raw rows.
func (p *Periods) OfRawWindow(window int64) *Period {
	return p.lastBegun(func(x *Period) bool { return x.FirstWindow <= window })
}

// lastBegun returns the last period for which begun returns true, or else the first one, which has no start.
func (p *Periods) lastBegun(begun func(*Period) bool) *Period {
	list := p.All()
	i := len(list) - 1
	for i > 0 && !begun(&list[i]) {
		i--
	}
	return &list[i]
}

// SlotOf returns the slot of a timestamp in milliseconds. A slot has the timestamps (SlotStart, SlotEnd]: left-open and
// right-closed, as PromQL's ranges are.
func (p *Periods) SlotOf(t int64) int64 {
	x := p.PeriodAt(t)
	return x.FirstSlot + FloorDiv(t-1-x.FromMS, x.SlotMS)
}

// SlotStart returns the timestamp before the first timestamp of a slot.
func (p *Periods) SlotStart(slot int64) int64 {
	x := p.OfSlot(slot)
	return x.FromMS + (slot-x.FirstSlot)*x.SlotMS
}

// SlotEnd returns the last timestamp of a slot.
func (p *Periods) SlotEnd(slot int64) int64 { return p.SlotStart(slot) + p.OfSlot(slot).SlotMS }

// RawWindowOfSlot returns the window of raw rows of a slot. A window has the slots that start in it.
func (p *Periods) RawWindowOfSlot(slot int64) int64 { return p.RawWindowAt(p.SlotStart(slot) + 1) }

// RawWindowAt returns the window of raw rows of a timestamp.
func (p *Periods) RawWindowAt(t int64) int64 {
	x := p.PeriodAt(t)
	return x.FirstWindow + FloorDiv(t-1-x.FromMS, x.RawWindowMS)
}

// RawWindowEnd returns the last timestamp of a window of raw rows.
func (p *Periods) RawWindowEnd(window int64) int64 {
	x := p.OfRawWindow(window)
	return x.FromMS + (window-x.FirstWindow+1)*x.RawWindowMS
}

// Partitions returns the max number of partitions in any period.
func (p *Periods) Partitions() int {
	list := p.All()
	return list[len(list)-1].Partitions // The number never decreases.
}

// PartitionOf returns the partition of a series in a slot. first is its partition in the first period. hash returns the
// hash of the series and is called only if there is more than one period.
func (p *Periods) PartitionOf(slot int64, first int, hash func() uint64) int {
	list := p.All()
	if len(list) == 1 {
		return first
	}
	n := list[0].Partitions
	return first + n*PartitionOf(deriveHash(hash()), p.OfSlot(slot).Partitions/n)
}

// deriveHash derives another hash from a hash (the finalizer of splitmix64; Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014).
func deriveHash(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// ErrBadPeriod is returned for an invalid new period, with the reason.
var ErrBadPeriod = errors.New("format: invalid period")

// periodLead is the min time between adding a period and its start. Every process must have read the period before any
// process' clock reaches the start, clocks differ by less than a day, and senders may be early.
const periodLead = 25 * time.Hour

// Limits of a new period: the max width of its windows, and the max time until its start.
const (
	maxWindow     = 31 * 24 * time.Hour
	maxPeriodLead = 366 * 24 * time.Hour
)

// NextPeriod returns the period to add after the last one. Fields that are 0 in want are copied from the last period.
// The new period starts at the first end of a window of raw rows that is at least periodLead after now and not before
// from. NextPeriod returns ErrBadPeriod if this period would be invalid.
func (p *Periods) NextPeriod(want Period, from, now time.Time) (Period, error) {
	list := p.All()
	last := list[len(list)-1]
	if want.SlotMS == 0 {
		want.SlotMS = last.SlotMS
	}
	if want.RawWindowMS == 0 {
		want.RawWindowMS = last.RawWindowMS
	}
	if want.Partitions == 0 {
		want.Partitions = last.Partitions
	}
	if err := want.Check(); err != nil {
		return want, fmt.Errorf("%w: %w", ErrBadPeriod, err)
	}
	switch {
	case want.Partitions%last.Partitions != 0:
		return want, fmt.Errorf("%w: %d partitions are not a multiple of %d", ErrBadPeriod,
			want.Partitions, last.Partitions)
	case want.SameCut(last):
		return want, fmt.Errorf("%w: the last period already has %s", ErrBadPeriod, last)
	case len(list) >= MaxPeriods:
		return want, fmt.Errorf("%w: the store already has the maximum number of periods, %d", ErrBadPeriod, len(list))
	}
	if want.RawWindowMS > maxWindow.Milliseconds() {
		return want, fmt.Errorf(
			"%w: a window of %v; the maximum is %v, because disk space is released by whole windows", ErrBadPeriod,
			time.Duration(want.RawWindowMS)*time.Millisecond, maxWindow,
		)
	}
	if latest := now.Add(maxPeriodLead); from.After(latest) {
		return want, fmt.Errorf("%w: it would start at %s; because it can't be undone, it must start before %s",
			ErrBadPeriod,
			from.UTC().Format(time.RFC3339), latest.UTC().Format(time.RFC3339))
	}
	earliest := max(now.Add(periodLead).UnixMilli(), from.UnixMilli(), last.FromMS+1)
	window := p.RawWindowAt(earliest)
	if p.RawWindowEnd(window-1) >= earliest {
		window--
	}
	want.FromMS = p.RawWindowEnd(window)
	want.FirstWindow = window + 1
	want.FirstSlot = p.SlotOf(want.FromMS) + 1
	return want, nil
}
