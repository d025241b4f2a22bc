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
	"github.com/cassia-db/cassia/storage/rollup"
)

// ImportedSeries is a series with samples of any slots. Both belong to the store from Import on.
type ImportedSeries struct {
	Labels  labels.Labels
	Samples *chunk.Samples
}

// ImportedBuckets is a series of which another system kept aggregates instead of samples. Both belong to the store from ImportBuckets on.
type ImportedBuckets struct {
	Labels labels.Labels
	// Resolution is that of the buckets, FiveMinutes or OneHour.
	Resolution rollup.Resolution
	// Buckets are made by rollup.Buckets.AppendAggregate.
	Buckets *rollup.Buckets
}

// ImportStats counts the samples of an import. Of buckets it counts the samples that they were made of. Samples that a source gave twice count once.
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
	// TooCoarse are samples of buckets that are wider than the finest rows that are kept of their time. None was stored.
	TooCoarse int
	// Expired counts samples that are too old for any resolution, Ahead samples too far in the future, and Refused
	// invalid samples and samples of series with invalid labels. None of them was stored.
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
	a.TooCoarse += b.TooCoarse
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
	return s.importDays(ctx, tenant, func(m *importing) error {
		for i := range list {
			if err := m.add(&list[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// ImportBuckets is Import for aggregates that another system kept: they are added to rollups of their width and coarser ones, where these are the finest
// that are kept of their time, see ImportStats.TooCoarse. Buckets that are stored stay as they are. Finer buckets are stored first.
func (s *Store) ImportBuckets(ctx context.Context, tenant string, list []ImportedBuckets) (ImportStats, error) {
	return s.importDays(ctx, tenant, func(m *importing) error {
		for i := range list {
			if err := m.addBuckets(&list[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// importDays imports the series that add adds.
func (s *Store) importDays(ctx context.Context, tenant string, add func(*importing) error) (stats ImportStats, err error) {
	if err := s.clock.MayRemove(); err != nil {
		return stats, err
	}
	s.imports.mu.Lock()
	defer s.imports.mu.Unlock()
	defer func() { s.imports.last = s.opts.Now() }()
	if dropped := s.imports.dropped.Swap(false); dropped || s.imports.head == nil || s.imports.full(&s.opts) {
		s.imports.head = head.New(s.head.Partitions(), s.period)
	}
	m := &importing{s: s, head: s.imports.head, tenant: s.imports.head.Tenant(tenant), days: map[dayKey]*importDay{}}
	if err := add(m); err != nil {
		return m.stats, err
	}
	for _, day := range slices.SortedFunc(maps.Keys(m.days), dayKey.compare) {
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
	days   map[dayKey]*importDay
	stats  ImportStats
}

// dayKey is the start of a day, milliseconds, and the resolution of what the import brings of it.
type dayKey struct {
	start  int64
	source rollup.Resolution
}

func (k dayKey) compare(other dayKey) int {
	return cmp.Or(cmp.Compare(k.start, other.start), cmp.Compare(k.source, other.source))
}

// day returns the day that holds a timestamp.
func (m *importing) day(t int64, source rollup.Resolution) *importDay {
	k := dayKey{m.s.period.DayOf(m.s.period.SlotOf(t)), source}
	d := m.days[k]
	if d == nil {
		d = &importDay{importing: m, dayKey: k, of: map[*Series]*importedDay{}}
		m.days[k] = d
	}
	return d
}

// checkedLabels returns the labels of a series as they are stored, or false if it is refused.
func (m *importing) checkedLabels(ls labels.Labels, samples int) (labels.Labels, bool) {
	most := m.s.opts.labelBounds(m.tenant.Name())
	name := m.s.truncated(m.tenant.Name(), ls, most)
	if err := checkLabels(name, most); err != nil {
		m.stats.Refuse(ls, samples, err)
		return ls, false
	}
	return name.WithoutEmpty().Copy(), true
}

// add cuts a series into days.
func (m *importing) add(in *ImportedSeries) error {
	samples := in.Samples
	name, ok := m.checkedLabels(in.Labels, samples.Len())
	if !ok {
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
	series, err := m.head.Define(m.tenant, name, nil)
	if err != nil {
		return err
	}
	first := true
	for rest := *samples; rest.Len() > 0; {
		t, _ := format.TimeBounds(&rest)
		d := m.day(t, rollup.Raw)
		part := &importedDay{collected: collected{series: series}}
		part.samples, rest = cutSamples(rest, d.start+format.DayMS)
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
