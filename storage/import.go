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
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/rollup"
)

// ImportedSeries is a series with samples of any slots. The store owns Labels and Samples once Import is called.
type ImportedSeries struct {
	Labels  labels.Labels
	Samples *chunk.Samples
}

// ImportedBuckets is a series that another system stored as aggregates instead of samples. The store owns Labels and
// Buckets once ImportBuckets is called.
type ImportedBuckets struct {
	Labels labels.Labels
	// Resolution is the resolution of the buckets, FiveMinutes or OneHour.
	Resolution rollup.Resolution
	// Buckets are made by rollup.Buckets.AppendAggregate.
	Buckets *rollup.Buckets
}

// ImportStats counts the samples of an import. An imported bucket counts as the number of samples that it aggregates.
// If one call passes the same sample more than once at the same resolution, it counts once.
type ImportStats struct {
	// Series is the number of series with samples or buckets. Samples is the number of written samples. Chunks and
	// Bytes are the number and size of the chunks that contain them.
	Series, Samples, Chunks int
	Bytes                   int64
	// Known counts samples that were already stored.
	Known int
	// RollupsOnly counts samples that are too old for raw rows and were added to rollups only. HoursOnly counts the
	// samples among them that are also too old for 5m rollups, and were added to 1h rollups only.
	RollupsOnly, HoursOnly int
	// LeftOut counts the samples among RollupsOnly that weren't added to rollups, because the rollups may already
	// include them. This is the case if the finest stored rollups have a bucket without raw samples at the same time,
	// and the time ranges of the bucket's samples and of the imported samples overlap, or may overlap because one of
	// them is an imported bucket; see rollup.Extend.
	LeftOut int
	// RawGone counts the samples among RollupsOnly that are within the raw retention. They were added to rollups only,
	// because their day has rollups without raw samples, or rows that have expired.
	RawGone int
	// TooCoarse counts the samples of imported buckets that weren't stored because finer rows are stored for the same
	// time.
	TooCoarse int
	// Expired counts samples that are too old for any resolution, Ahead counts samples too far in the future, and
	// Refused counts invalid samples and samples of series with invalid labels. These samples weren't stored.
	Expired, Ahead, Refused int
	// Refusals describes the first rejected series, at most maxRefusals.
	Refusals []Refusal
}

// Refusal is a series with rejected samples, and the reason.
type Refusal struct {
	Labels  labels.Labels
	Samples int
	Err     error
}

// maxRefusals is the max length of ImportStats.Refusals.
const maxRefusals = 20

// Add adds the counts of another import.
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

// AddRefusal counts samples of a series that were rejected because of err. It adds the series to Refusals unless the
// list is full.
func (a *ImportStats) AddRefusal(ls labels.Labels, samples int, err error) {
	if samples == 0 {
		return
	}
	a.Refused += samples
	if len(a.Refusals) < maxRefusals {
		a.Refusals = append(a.Refusals, Refusal{ls, samples, err})
	}
}

// imports runs the imports of a process, one at a time. Imported series are kept in a separate head, so that the
// store's head of unsealed samples doesn't grow.
type imports struct {
	mu   sync.Mutex
	head *head.Head
	last time.Time // when the last import ended
	// dropped is set when a window is dropped. The head is then outdated, because it may record that labels of this
	// window are already written.
	dropped atomic.Bool
}

const (
	// importHeadBytes is the max size of the series cached for imports. If an eighth of Options.HeadBytes is smaller,
	// that is the limit. If the cached series exceed the limit, the next import starts with an empty cache, and writes
	// names and labels again.
	importHeadBytes = 256 << 20
	// importCacheTTL is the time after the last import at which the cached series are released.
	importCacheTTL = 10 * time.Minute
)

// isFull reports whether the cached series exceed the limit described at importHeadBytes.
func (i *imports) isFull(o *Options) bool {
	most := int64(importHeadBytes)
	if o.HeadBytes > 0 {
		most = min(most, o.HeadBytes/8)
	}
	return i.head.Bytes() > most
}

// release releases the cached series if the last import ended more than importCacheTTL ago.
func (i *imports) release(now time.Time) {
	if !i.mu.TryLock() {
		return
	}
	defer i.mu.Unlock()
	if now.Sub(i.last) > importCacheTTL {
		i.head = nil
	}
}

// Import seals samples of a tenant directly, without the staging log, and computes their rollups:
//
//	series ─► days ─► commit records ─► metrics, in parallel ─► catalog, labels, chunks ─► 5m ─► 1h ─► commit records
//
// All rows are durable when Import returns. After an error or a crash the import may be repeated, with the same or
// overlapping series, because samples that are already sealed are skipped. Staged samples of the same slots are sealed
// later, as late samples. Samples that are too old for raw rows are added to rollups only. All samples of a bucket that
// are too old for raw rows must be passed in one call, because samples passed later may be left out, see
// ImportStats.LeftOut. Limits of tenants don't apply.
func (s *Store) Import(ctx context.Context, tenant string, list []ImportedSeries) (stats ImportStats, err error) {
	return s.importDays(ctx, tenant, func(m *importing) error {
		for i := range list {
			if err := m.addSeries(&list[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// ImportBuckets is like Import, for aggregates of another system. It adds each bucket to the rollups of the bucket's
// width and to coarser rollups, unless finer rows are stored for the bucket's time; see ImportStats.TooCoarse. A stored
// bucket is only extended by buckets that are older or newer than all its samples, see rollup.Extend. If a series has
// buckets of both widths, the 5m buckets are stored first.
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

// importDays calls add, which divides series into days, and then imports each day.
func (s *Store) importDays(
	ctx context.Context, tenant string, add func(*importing) error,
) (stats ImportStats, err error) {
	if err := s.clock.MayRemove(); err != nil {
		return stats, err
	}
	state, end := s.member.Imports.Begin(tenant)
	defer end()
	s.member.Imports.SetWait(state, membership.WaitsForImport)
	s.imports.mu.Lock()
	defer s.imports.mu.Unlock()
	s.member.Imports.SetWait(state, "")
	defer func() { s.imports.last = s.opts.Now() }()
	if dropped := s.imports.dropped.Swap(false); dropped || s.imports.head == nil || s.imports.isFull(&s.opts) {
		s.imports.head = head.New(s.head.Partitions(), s.period)
	}
	m := &importing{
		s: s, head: s.imports.head, tenant: s.imports.head.Tenant(tenant), days: map[dayKey]*importDay{}, state: state,
	}
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

// importing is the state of one import.
type importing struct {
	s      *Store
	head   *head.Head
	tenant *head.Tenant
	days   map[dayKey]*importDay
	stats  ImportStats
	state  *membership.ImportStatus
}

// dayKey identifies an importDay: the start of a day, in milliseconds, and the resolution of the imported data.
type dayKey struct {
	start  int64
	source rollup.Resolution
}

func (k dayKey) compare(other dayKey) int {
	return cmp.Or(cmp.Compare(k.start, other.start), cmp.Compare(k.source, other.source))
}

// day returns the importDay for a timestamp and a source, and creates it if it doesn't exist.
func (m *importing) day(t int64, source rollup.Resolution) *importDay {
	k := dayKey{m.s.period.DayOf(m.s.period.SlotOf(t)), source}
	d := m.days[k]
	if d == nil {
		d = &importDay{importing: m, dayKey: k, of: map[*Series]*importedDay{}}
		m.days[k] = d
	}
	return d
}

// checkedLabels returns the labels under which a series is stored. It returns false if the series is rejected.
func (m *importing) checkedLabels(ls labels.Labels, samples int) (labels.Labels, bool) {
	most := m.s.opts.labelBounds(m.tenant.Name())
	name := m.s.truncateLabels(m.tenant.Name(), ls, most)
	if err := checkLabels(name, most); err != nil {
		m.stats.AddRefusal(ls, samples, err)
		return ls, false
	}
	return name.WithoutEmpty().Copy(), true
}

// addSeries divides the samples of a series into days.
func (m *importing) addSeries(in *ImportedSeries) error {
	samples := in.Samples
	name, ok := m.checkedLabels(in.Labels, samples.Len())
	if !ok {
		return nil
	}
	samples.Canonicalize(func(err error) { m.stats.AddRefusal(in.Labels, 1, &InvalidHistogramError{Err: err}) })
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
		part := &importedDay{collectedSeries: collectedSeries{series: series}}
		part.samples, rest = cutSamples(rest, d.start+format.DayMS)
		if same := d.of[series]; same != nil { // The import contains the series more than once.
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

// cutSamples divides normalized samples into the samples up to at, inclusive, and the samples after at. Both parts
// share the memory of samples.
func cutSamples(samples chunk.Samples, at int64) (until, after chunk.Samples) {
	n, _ := slices.BinarySearch(samples.T, at+1)
	h, _ := slices.BinarySearchFunc(samples.H, at+1, func(x chunk.Histogram, t int64) int {
		return cmp.Compare(x.T, t)
	})
	until = chunk.Samples{T: samples.T[:n:n], V: samples.V[:n:n], H: samples.H[:h:h]}
	after = chunk.Samples{T: samples.T[n:], V: samples.V[n:], H: samples.H[h:]}
	if len(samples.ST) > 0 {
		until.ST, after.ST = samples.ST[:n:n], samples.ST[n:]
	}
	return until, after
}
