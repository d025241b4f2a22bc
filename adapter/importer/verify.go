package importer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Figures are the compared aggregates of samples.
type Figures struct {
	// Count is the number of samples. Sum is the sum of all floats and of the sums of histograms, except NaN and
	// infinite values.
	Count int
	Sum   float64
}

func (f Figures) String() string { return fmt.Sprintf("%s, sum %v", countSamples(f.Count), f.Sum) }

// Difference is a day of a series in which the stored samples differ from the source.
type Difference struct {
	Labels labels.Labels
	// DayMS is the start of the day, in milliseconds. Days end at midnight UTC.
	DayMS int64
	// Source are the figures of the source, Stored the figures of the stored samples at the same timestamps.
	Source, Stored Figures
	// Rollups is true if rollups were compared, because the store keeps only rollups for that time.
	Rollups bool
}

func (d Difference) String() string {
	of := " samples"
	if d.Rollups {
		of = " rollups"
	}
	text := fmt.Sprintf("%s on %s: the source has %v, the stored%s have %v",
		d.Labels, formatInstant(d.DayMS + 1)[:10], d.Source, of, d.Stored)
	if d.Source == d.Stored {
		text += ": counts and sums are equal, but the samples differ"
	}
	return text
}

// VerifyStats counts compared series and samples. Servers return it as JSON with these field names.
type VerifyStats struct {
	// SeriesDays is the number of series whose samples or rollups were compared, counted once per day and resolution.
	SeriesDays int
	// Samples counts samples that were compared bit by bit. RolledUp counts samples that were compared by the counts
	// and sums of their rollups, because the store keeps only these. Left counts samples that weren't compared: they
	// are too old, too new or otherwise rejected by stores, the source has only aggregates of them, or their rollup
	// bucket also contains samples that weren't selected or aren't in the source. Newer counts samples that are newer
	// than the last imported one, because the source has grown.
	Samples, RolledUp, Left, Newer int
	Differences                    int
}

// Add adds the counts of another comparison.
func (v *VerifyStats) Add(b VerifyStats) {
	v.SeriesDays += b.SeriesDays
	v.Samples += b.Samples
	v.RolledUp += b.RolledUp
	v.Left += b.Left
	v.Newer += b.Newer
	v.Differences += b.Differences
}

// Verify reads the source again from the start and compares it with the stored samples at the same timestamps, by
// series and day. Stored samples that aren't in the source don't count as differences. Samples newer than the last
// imported sample aren't compared, because the source may have received them after the import.
func Verify(ctx context.Context, o Options, report func(Difference)) (all VerifyStats, err error) {
	newest, err := o.newestRead(ctx)
	if err != nil {
		return all, err
	}
	for b, err := range prefetch(ctx, o.Source, "") {
		if err != nil {
			return all, err
		}
		within := o.selectedSpan()
		if newer := clipAfter(b.Series, newest); newer > 0 {
			all.Newer += newer
			within.MaxT = min(within.MaxT, newest)
		}
		stats, err := o.Into.Compare(ctx, o.Tenant, b.Series, within, report)
		if err != nil {
			return all, err
		}
		all.Add(stats)
		for i := range b.Buckets {
			all.Left += b.Buckets[i].Buckets.Samples()
		}
		if o.Progress != nil {
			o.Progress(Progress{Done: b.Done, Stats: storage.ImportStats{Known: all.Samples + all.RolledUp}})
		}
	}
	return all, ctx.Err()
}

// selectedSpan returns the selected range of time.
func (o *Options) selectedSpan() query.Span {
	if o.Within == (query.Span{}) {
		return AllTimes()
	}
	return o.Within
}

// newestRead returns the newest timestamp that the import read, in milliseconds, or math.MaxInt64 if it is unknown.
func (o *Options) newestRead(ctx context.Context) (int64, error) {
	identity, err := o.Into.Identity(ctx, o.Tenant)
	if err != nil {
		return 0, err
	}
	at, _, err := readCheckpoint(o.Checkpoint, Checkpoint{
		Source: o.Name, Target: o.Target, Tenant: o.Tenant, Store: identity,
	})
	if err != nil || !at.Complete || at.NewestMS == nil {
		return math.MaxInt64, err
	}
	return *at.NewestMS, nil
}

// clipAfter removes the samples after a timestamp and returns their number.
func clipAfter(list []storage.ImportedSeries, last int64) (removed int) {
	if last == math.MaxInt64 {
		return 0
	}
	for i := range list {
		s := list[i].Samples
		before := s.Len()
		if olderThan(&list[i], last+1) < before {
			s.Normalize()
			before = s.Len()
			s.Clip(math.MinInt64, last)
			removed += before - s.Len()
		}
	}
	return removed
}

// verifier compares the series of one batch.
type verifier struct {
	*local
	ctx    context.Context
	tenant string
	within query.Span
	report func(Difference)
	stats  VerifyStats
	have   chunk.Samples
}

const dayMS = 24 * 3600 * 1000

// dayOf returns the start of a timestamp's day. A day excludes its start and includes its end.
func dayOf(t int64) int64 {
	d := (t - 1) / dayMS
	if (t-1)%dayMS < 0 {
		d--
	}
	return d * dayMS
}

// verifyBatch compares the series of a batch, one metric at a time.
func (v *verifier) verifyBatch(list []storage.ImportedSeries) error {
	byMetric := map[string]map[uint64]*storage.ImportedSeries{}
	for i := range list {
		x := &list[i]
		x.Labels = x.Labels.WithoutEmpty()
		metric := x.Labels.Get(labels.MetricName)
		if byMetric[metric] == nil {
			byMetric[metric] = map[uint64]*storage.ImportedSeries{}
		}
		if same := byMetric[metric][x.Labels.Hash()]; same != nil {
			same.Samples.AppendAll(x.Samples)
		} else {
			byMetric[metric][x.Labels.Hash()] = x
		}
	}
	for _, metric := range slices.Sorted(maps.Keys(byMetric)) {
		if err := v.verifyMetric(metric, byMetric[metric]); err != nil {
			return err
		}
	}
	return nil
}

// verifiedBounds are the times of a series that are compared, by resolution: after[res] < t ≤ until(res). The bounds
// are ends of whole buckets. last is the latest time at which samples are compared.
type verifiedBounds struct {
	after [rollup.OneHour + 1]int64
	last  int64
}

func (v *verifier) boundsOf(h retention.HiddenTimes) verifiedBounds {
	up := func(t, width int64) int64 { return t - t%width + width }
	b := verifiedBounds{last: v.now().Add(storage.MaxAhead).UnixMilli()}
	b.after[rollup.OneHour] = up(h.At[rollup.OneHour], rollup.OneHour.Width())
	b.after[rollup.FiveMinutes] = max(b.after[rollup.OneHour], up(h.At[rollup.FiveMinutes], rollup.OneHour.Width()))
	b.after[rollup.Raw] = max(b.after[rollup.FiveMinutes], up(h.At[rollup.Raw], rollup.FiveMinutes.Width()))
	return b
}

// lastTime returns the last time that is compared at a resolution.
func (b *verifiedBounds) lastTime(res rollup.Resolution) int64 {
	if res == rollup.Raw {
		return b.last
	}
	return b.after[res-1]
}

// verifyMetric compares the series of one metric.
func (v *verifier) verifyMetric(name string, want map[uint64]*storage.ImportedSeries) error {
	minT, maxT := int64(math.MaxInt64), int64(math.MinInt64)
	for _, x := range want {
		x.Samples.Canonicalize(func(error) {}) // Samples that every store rejects aren't a difference.
		x.Samples.Normalize()
		eachTime(x.Samples, func(t int64) { minT, maxT = min(minT, t), max(maxT, t) })
	}
	if minT > maxT {
		return nil
	}
	q := query.Query{
		Tenant: v.tenant, MinT: minT, MaxT: maxT,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)},
	}
	horizons, err := v.store.BoundariesBySeries(v.ctx, v.tenant, minT, maxT)
	if err != nil {
		return err
	}
	bounds := make(map[uint64]map[int64]verifiedBounds, len(want)) // by series and day
	// first and last are the min and max compared times of all series, per resolution.
	var first, last [rollup.OneHour + 1]int64
	for res := range first {
		first[res], last[res] = math.MaxInt64, math.MinInt64
	}
	for hash, x := range want {
		bounds[hash] = map[int64]verifiedBounds{}
		var failed error
		eachTime(x.Samples, func(t int64) {
			day := dayOf(t)
			if _, known := bounds[hash][day]; known || failed != nil {
				return
			}
			h, err := horizons(x.Labels, t)
			b := v.boundsOf(h)
			bounds[hash][day], failed = b, err
			for res := range first {
				first[res] = min(first[res], b.after[res]+1)
				last[res] = max(last[res], b.lastTime(rollup.Resolution(res)))
			}
		})
		if failed != nil {
			return failed
		}
	}
	var found [rollup.OneHour + 1]map[uint64]*query.SelectedSeries
	for res := range found {
		of := q
		if of.Resolution = rollup.Resolution(res); of.Resolution != rollup.Raw {
			of.Columns = rollup.ColumnCount | rollup.ColumnSum
		}
		width := of.Resolution.Width() // Buckets start before their first sample and end after their last.
		of.MinT, of.MaxT = max(minT-width, first[res]), min(maxT+width, last[res])
		if found[res], err = v.findSeries(of); err != nil {
			return err
		}
	}
	for hash, x := range want {
		have := [rollup.OneHour + 1]*query.SelectedSeries{}
		for res := range have {
			have[res] = found[res][hash]
		}
		if err := v.verifySeries(x, have, bounds[hash]); err != nil {
			return err
		}
	}
	return nil
}

// findSeries returns the series of a query by the hash of their labels.
func (v *verifier) findSeries(q query.Query) (map[uint64]*query.SelectedSeries, error) {
	if q.MinT > q.MaxT {
		return nil, nil
	}
	found, err := v.store.Select(v.ctx, q)
	if err != nil {
		return nil, err
	}
	byHash := make(map[uint64]*query.SelectedSeries, len(found))
	for _, s := range found {
		byHash[s.Labels.Hash()] = s
	}
	return byHash, nil
}

// verifySeries compares one series with its stored samples and rollups.
func (v *verifier) verifySeries(
	x *storage.ImportedSeries, found [rollup.OneHour + 1]*query.SelectedSeries, bounds map[int64]verifiedBounds,
) error {
	v.have.Reset()
	if raw := found[rollup.Raw]; raw != nil {
		if err := raw.Samples(&v.have); err != nil {
			return err
		}
	}
	var have [rollup.OneHour + 1]rollup.Buckets
	for _, res := range rollup.Resolutions {
		if s := found[res]; s != nil {
			if err := s.Buckets(&have[res], &query.BucketBuffers{}); err != nil {
				return err
			}
		}
	}
	for rest := x.Samples; rest.Len() > 0; {
		day := dayOf(firstOf(rest))
		b := bounds[day]
		want := &chunk.Samples{}
		want.AppendAll(rest)
		want.Clip(day+1, day+dayMS)
		rest.Clip(day+dayMS+1, math.MaxInt64)
		v.stats.Left += want.Len()
		for res := range have {
			part := &chunk.Samples{}
			part.AppendAll(want)
			part.Clip(b.after[res]+1, b.lastTime(rollup.Resolution(res)))
			v.stats.Left -= part.Len()
			switch {
			case part.Len() == 0:
			case res == int(rollup.Raw):
				v.compareRaw(x.Labels, day, part)
			default:
				v.compareRollups(x.Labels, day, part, rollup.Resolution(res), &have[res])
			}
		}
	}
	return nil
}

// compareRaw compares the samples of a day bit by bit.
func (v *verifier) compareRaw(ls labels.Labels, day int64, want *chunk.Samples) {
	v.stats.SeriesDays++
	v.stats.Samples += want.Len()
	if v.have.Covers(want) {
		return
	}
	at := make(map[int64]bool, want.Len())
	eachTime(want, func(t int64) { at[t] = true })
	v.reportDifference(Difference{Labels: ls, DayMS: day, Source: figuresOf(want, nil), Stored: figuresOf(&v.have, at)})
}

// compareRollups compares counts and sums of rollup buckets. It skips buckets with more samples in the store than in
// the source.
func (v *verifier) compareRollups(
	ls labels.Labels, day int64, want *chunk.Samples, res rollup.Resolution, have *rollup.Buckets,
) {
	whole := v.wholeBuckets(want, res.Width())
	v.stats.Left += want.Len() - whole.Len()
	if want = whole; want.Len() == 0 {
		return
	}
	var made rollup.Buckets
	rollup.AppendEvery(&made, want, res.Width())
	d := Difference{Labels: ls, DayMS: day, Rollups: true}
	same, largest, beside := true, largestOf(want), 0
	for i, end := range made.End {
		var stored Figures
		if j, ok := slices.BinarySearch(have.End, end); ok {
			stored = Figures{int(have.Count[j]), have.Sum[j]}
		}
		n := int(made.Count[i])
		if stored.Count > n { // The bucket includes samples that aren't in the source.
			beside += n
			continue
		}
		d.Source = Figures{d.Source.Count + n, d.Source.Sum + made.Sum[i]}
		d.Stored = Figures{d.Stored.Count + stored.Count, d.Stored.Sum + stored.Sum}
		same = same && stored.Count == n && (isSameSum(stored.Sum, made.Sum[i], float64(n)*largest) ||
			isOverflow(made.Flags[i], stored.Sum, made.Sum[i]))
	}
	v.stats.Left += beside
	if compared := want.Len() - beside; compared > 0 { // Includes stale markers, which buckets don't count.
		v.stats.SeriesDays++
		v.stats.RolledUp += compared
	}
	if !same {
		v.reportDifference(d)
	}
}

// wholeBuckets returns the samples whose buckets lie within the selected range of time. For the other buckets, the
// source may have samples that were not read.
func (v *verifier) wholeBuckets(samples *chunk.Samples, width int64) *chunk.Samples {
	endOf := func(t int64) int64 { return t + (width-t%width)%width } // end of t's bucket, a multiple of width
	minT, maxT := int64(math.MinInt64), int64(math.MaxInt64)
	if v.within.MinT > math.MinInt64+2*width {
		minT = endOf(v.within.MinT-1) + 1
	}
	if v.within.MaxT < math.MaxInt64-2*width {
		maxT = endOf(v.within.MaxT+1) - width
	}
	whole := &chunk.Samples{}
	whole.AppendAll(samples)
	whole.Clip(minT, maxT)
	return whole
}

// isSameSum reports whether two sums of the same values are equal except for rounding errors. most bounds the sum of
// the absolute values. Sums differ in rounding if a bucket was filled by multiple imports, which add the values in
// another order.
func isSameSum(a, b, most float64) bool {
	const rounding = 1.0 / (1 << 50)
	return a == b || a != a && b != b || math.Abs(a-b) <= most*rounding
}

// isOverflow reports whether two sums of the same values may differ because one of them overflowed. Whether a sum
// overflows depends on the order of addition, and a coarser bucket is the sum of finer buckets.
func isOverflow(flags rollup.Flags, a, b float64) bool {
	return flags&rollup.Large != 0 && (a-a != 0 || b-b != 0)
}

// largestOf returns the largest finite absolute value of floats and sums of histograms.
func largestOf(s *chunk.Samples) (largest float64) {
	note := func(x float64) {
		if x = math.Abs(x); x > largest && !math.IsInf(x, 0) {
			largest = x
		}
	}
	for _, x := range s.V {
		note(x)
	}
	for _, h := range s.H {
		if h.Int != nil {
			note(h.Int.Sum)
		} else {
			note(h.Float.Sum)
		}
	}
	return largest
}

func (v *verifier) reportDifference(d Difference) {
	v.stats.Differences++
	v.report(d)
}

// figuresOf returns the figures of the samples at the timestamps in at, or of all samples if at is nil.
func figuresOf(s *chunk.Samples, at map[int64]bool) (f Figures) {
	add := func(t int64, x float64) {
		if at != nil && !at[t] {
			return
		}
		f.Count++
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			f.Sum += x
		}
	}
	for i, t := range s.T {
		add(t, s.V[i])
	}
	for _, h := range s.H {
		if h.Int != nil {
			add(h.T, h.Int.Sum)
		} else {
			add(h.T, h.Float.Sum)
		}
	}
	return f
}

func eachTime(s *chunk.Samples, f func(int64)) {
	for _, t := range s.T {
		f(t)
	}
	for _, h := range s.H {
		f(h.T)
	}
}

// firstOf returns the first timestamp of normalized samples. There must be at least one sample.
func firstOf(s *chunk.Samples) int64 {
	switch {
	case len(s.H) == 0:
		return s.T[0]
	case len(s.T) == 0:
		return s.H[0].T
	}
	return min(s.T[0], s.H[0].T)
}
