package storage

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// ImportedSeries is a series with samples of any slots. Both belong to the store from Import on.
type ImportedSeries struct {
	Labels  labels.Labels
	Samples *chunk.Samples
}

// ImportStats counts the samples of an import. Samples that a source gave twice count once.
type ImportStats struct {
	// Series brought anything; Samples were written, in Chunks chunks of Bytes bytes.
	Series, Samples, Chunks int
	Bytes                   int64
	// Known samples were there already.
	Known int
	// RollupsOnly are samples that are too old for raw rows: they are in the rollups. HoursOnly of them are too old for 5m rollups as well, and were added
	// to those of 1h.
	RollupsOnly, HoursOnly int
	// LeftOut of RollupsOnly weren't added to the rollups: their bucket, of the finest rollups that are made, exists, its raw samples are gone, and these samples lie
	// between its oldest and newest, so they may be in it already.
	LeftOut int
	// RawGone of RollupsOnly are within the retention of raw samples, but there are rollups of their day without raw samples, or rows of that day have expired.
	RawGone int
	// Expired are samples that are too old for any row, Ahead those too far in the future, Refused those that can't be
	// stored at all, for their series' labels or their own sake. None of these was taken.
	Expired, Ahead, Refused int
	// Refusals are the reasons, for the first that were refused.
	Refusals []Refusal
}

// Refusal is a series of which samples were not taken.
type Refusal struct {
	Labels  labels.Labels
	Samples int
	Err     error
}

// maxRefusals bounds ImportStats.Refusals.
const maxRefusals = 20

// Add adds what another import did.
func (a *ImportStats) Add(b ImportStats) {
	a.Series += b.Series
	a.Samples += b.Samples
	a.Chunks += b.Chunks
	a.Bytes += b.Bytes
	a.Known += b.Known
	a.RollupsOnly += b.RollupsOnly
	a.HoursOnly += b.HoursOnly
	a.LeftOut += b.LeftOut
	a.RawGone += b.RawGone
	a.Expired += b.Expired
	a.Ahead += b.Ahead
	a.Refused += b.Refused
	a.Refusals = append(a.Refusals, b.Refusals[:min(len(b.Refusals), maxRefusals-len(a.Refusals))]...)
}

// Refuse counts samples that can't be stored.
func (a *ImportStats) Refuse(ls labels.Labels, samples int, err error) {
	if samples == 0 {
		return
	}
	a.Refused += samples
	if len(a.Refusals) < maxRefusals {
		a.Refusals = append(a.Refusals, Refusal{ls, samples, err})
	}
}

// imports are the imports of a process, one after the other. They have a head of their own for series, so that the store's,
// which holds unsealed samples, doesn't grow.
type imports struct {
	mu   sync.Mutex
	head *head.Head
	last time.Time // when the last one ended
	// dropped is true once a window was dropped, of which the head may have that its labels were written.
	dropped atomic.Bool
}

const (
	// importHeadBytes bounds the series that imports remember, if an eighth of the head's bound isn't less; beyond, they
	// forget all, and write names and labels again.
	importHeadBytes = 256 << 20
	// importRest is after how long without one they do, too: a server runs on for months.
	importRest = 10 * time.Minute
)

// full reports whether imports are to forget what they remember.
func (i *imports) full(o *Options) bool {
	most := int64(importHeadBytes)
	if o.HeadBytes > 0 {
		most = min(most, o.HeadBytes/8)
	}
	return i.head.Bytes() > most
}

// release forgets the series of imports that have ended.
func (i *imports) release(now time.Time) {
	if !i.mu.TryLock() {
		return
	}
	defer i.mu.Unlock()
	if now.Sub(i.last) > importRest {
		i.head = nil
	}
}

// Import seals the samples of a tenant directly, without the stage, with their rollups:
//
//	series ─► days ─► marks ─► metrics, side by side ─► catalog, labels, chunks ─► 5m ─► 1h ─► marks
//
// All of it is durable when it returns. It may be repeated, after an error or a crash, with the same series or others
// that overlap: samples that are sealed already are left out. What the stage and the head hold of the same slots is
// sealed later, as late data. Of samples too old for raw rows only rollups are made: samples that lie between others of their bucket must come in
// one call with them, or are left out, see ImportStats.LeftOut. The limits of tenants don't count.
func (s *Store) Import(ctx context.Context, tenant string, list []ImportedSeries) (stats ImportStats, err error) {
	if err := s.clock.MayRemove(); err != nil {
		return stats, err
	}
	s.imports.mu.Lock()
	defer s.imports.mu.Unlock()
	defer func() { s.imports.last = s.opts.Now() }()
	if dropped := s.imports.dropped.Swap(false); dropped || s.imports.head == nil || s.imports.full(&s.opts) {
		s.imports.head = head.New(s.head.Partitions(), s.period)
	}
	m := &importing{s: s, head: s.imports.head, tenant: s.imports.head.Tenant(tenant), days: map[int64]*importDay{}}
	for i := range list {
		if err := m.add(&list[i]); err != nil {
			return m.stats, err
		}
	}
	for _, day := range slices.Sorted(maps.Keys(m.days)) {
		if err := m.days[day].run(ctx); err != nil {
			return m.stats, err
		}
	}
	return m.stats, nil
}

// importing is one import.
type importing struct {
	s      *Store
	head   *head.Head
	tenant *head.Tenant
	days   map[int64]*importDay // by their start, milliseconds
	stats  ImportStats
}

// importedDay is a series with its samples of a day.
type importedDay struct {
	collected
	samples chunk.Samples
}

// add cuts a series into days.
func (m *importing) add(in *ImportedSeries) error {
	samples := in.Samples
	most := m.s.opts.labelBounds(m.tenant.Name())
	name := m.s.truncated(m.tenant.Name(), in.Labels, most)
	if err := checkLabels(name, most); err != nil {
		m.stats.Refuse(in.Labels, samples.Len(), err)
		return nil
	}
	samples.Canonical(func(err error) { m.stats.Refuse(in.Labels, 1, &InvalidHistogramError{Err: err}) })
	samples.Normalize()
	if samples.Len() == 0 {
		return nil
	}
	_, now := m.s.clock.Bounds()
	newest := now.Add(MaxAhead).UnixMilli()
	before := samples.Len()
	samples.Clip(-format.MaxTime, newest)
	m.stats.Ahead += before - samples.Len()
	if samples.Len() == 0 {
		return nil
	}
	series, err := m.head.Define(m.tenant, name.WithoutEmpty().Copy(), nil)
	if err != nil {
		return err
	}
	first := true
	for rest := *samples; rest.Len() > 0; {
		t, _ := format.TimeBounds(&rest)
		start := m.s.period.DayOf(m.s.period.SlotOf(t))
		d := m.days[start]
		if d == nil {
			d = &importDay{importing: m, start: start, of: map[*Series]*importedDay{}}
			m.days[start] = d
		}
		part := &importedDay{collected: collected{series: series}}
		part.samples, rest = cutSamples(rest, start+format.DayMS)
		if same := d.of[series]; same != nil { // It stands in the list several times.
			same.samples.AppendAll(&part.samples)
			same.samples.Normalize()
			first = false
			continue
		}
		d.of[series] = part
		d.list = append(d.list, part)
	}
	if first {
		m.stats.Series++
	}
	return nil
}

// cutSamples cuts normalized samples behind a timestamp. Both parts share the memory of samples.
func cutSamples(samples chunk.Samples, at int64) (until, after chunk.Samples) {
	n, _ := slices.BinarySearch(samples.T, at+1)
	h, _ := slices.BinarySearchFunc(samples.H, at+1, func(x chunk.Histogram, t int64) int { return cmp.Compare(x.T, t) })
	until = chunk.Samples{T: samples.T[:n:n], V: samples.V[:n:n], H: samples.H[:h:h]}
	after = chunk.Samples{T: samples.T[n:], V: samples.V[n:], H: samples.H[h:]}
	if len(samples.ST) > 0 {
		until.ST, after.ST = samples.ST[:n:n], samples.ST[n:]
	}
	return until, after
}
