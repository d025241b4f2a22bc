package query

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Exemplars returns the exemplars from start to end, both included, in milliseconds, of the series that match all
// matchers of at least one set in matchers. Series are ordered by their labels, and their exemplars by time. For each
// series and slot it returns at most the newest 1,024 exemplars. Exemplars older than the retention of raw samples are
// hidden. Exemplars returns ErrNotReady before queries can be answered, and meter.ErrQueryTooLarge if it would read
// more than Options.QueryBytes. Unreadable rows are skipped: see damage.WithWarnings.
func (q *Querier) Exemplars(
	ctx context.Context, tenant string, start, end int64, matchers ...[]*labels.Matcher,
) ([]exemplar.QueryResult, error) {
	if err := q.env.Ready(); err != nil {
		return nil, err
	}
	r, err := q.newRequest(ctx, Query{
		Tenant: tenant, MinT: start, MaxT: end, Warn: damage.Warnings(ctx), overGaps: true,
	})
	if err != nil {
		return nil, err
	}
	f := &exemplarFinder{r: r, found: map[format.SeriesID]*foundExemplars{}}
	if f.r.minT > f.r.maxT {
		return []exemplar.QueryResult{}, ctx.Err()
	}
	if err := f.r.loadTombstones(ctx); err != nil {
		return nil, err
	}
	for _, f.r.matchers = range matchers {
		if err := f.find(ctx); err != nil {
			return nil, err
		}
	}
	return f.results()
}

// exemplarFinder collects the exemplars of a query. It reads whole slots.
type exemplarFinder struct {
	r     *request
	mu    sync.Mutex
	found map[format.SeriesID]*foundExemplars
}

type foundExemplars struct {
	labels labels.Labels
	list   []format.Exemplar
}

// find adds the exemplars of series that match the request's matchers. It reads the head before the sealed windows, so
// that exemplars that are being sealed may be found twice but are never missed.
func (f *exemplarFinder) find(ctx context.Context) error {
	if err := f.addUnsealed(ctx); err != nil {
		return err
	}
	windows, err := windowFinder{f.r}.windows(ctx, rollup.Raw)
	if err != nil {
		return err
	}
	find := seriesFinder{f.r}
	list, err := find.windowMetrics(ctx, withSlots(windows))
	if err != nil {
		return err
	}
	return find.eachMatch(ctx, list, func(at int, m *metricSeries, positions []uint32) error {
		byPlace := map[format.ClassShard][]uint32{}
		for _, p := range positions {
			place := format.ClassShard(0)
			if m.places != nil {
				place = m.places[p]
			}
			byPlace[place] = append(byPlace[place], p)
		}
		for place, positions := range byPlace {
			if err := f.addSealed(ctx, f.r.sourceOf(list[at], place), m, positions); err != nil {
				return err
			}
		}
		return nil
	})
}

// addSeries adds the exemplars in list, which belong to one series, except exemplars at or before the time hidden. The
// retention of the series' class hides these exemplars.
func (f *exemplarFinder) addSeries(id format.SeriesID, ls labels.Labels, hidden int64, list []format.Exemplar) {
	list = slices.DeleteFunc(list, func(e format.Exemplar) bool { return e.T <= hidden })
	if len(list) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	found := f.found[id]
	if found == nil {
		found = &foundExemplars{labels: ls}
		f.found[id] = found
	}
	found.list = append(found.list, list...)
}

// addUnsealed adds the unsealed exemplars.
func (f *exemplarFinder) addUnsealed(ctx context.Context) error {
	p := f.r.env.Period
	after, to := p.SlotStart(p.SlotOf(f.r.minT)), p.SlotEnd(p.SlotOf(f.r.maxT))
	for s, list := range f.r.env.Head.Exemplars(ctx, f.r.tenant, f.r.matchers, after, to) {
		size := 0
		for _, e := range list {
			size += len(e.Data) + head.ExemplarBytes
		}
		if err := f.r.budget.Charge(size); err != nil {
			return err
		}
		shown := list[:0]
		for _, e := range list {
			of, err := f.r.days.ListAt(ctx, e.T)
			if err != nil {
				return err
			}
			if e.T > f.r.hiddenUntil(of.ClassOf(s), rollup.Raw) {
				shown = append(shown, e)
			}
		}
		f.addSeries(s.ID(), s.Labels(), -format.MaxTime, shown)
	}
	return ctx.Err()
}

// addSealed adds the exemplars of the series in one place (a class and a shard). The positions must be in the order of
// the series' ids.
func (f *exemplarFinder) addSealed(ctx context.Context, src source, m *metricSeries, positions []uint32) error {
	p, slots := f.r.env.Period, src.window.slots
	scan := func(from, to engine.Key) error {
		next := 0
		return f.r.Scan(ctx, engine.Range{
			Table: engine.Raw, Partition: format.SeriesPartition(src.window.window, f.r.tenant, src.metric, src.place),
			From: from, To: to,
		}, func(row engine.Row) error {
			var found bool
			next, found = slices.BinarySearchFunc(positions, row.Clustering[2].Text, func(p uint32, id string) int {
				return strings.Compare(string(m.ids[p][:]), id)
			})
			if !found {
				return nil
			}
			if err := f.r.budget.Charge(len(row.Value) + head.ExemplarBytes); err != nil {
				return err
			}
			at := positions[next]
			list, _, err := format.DecodeRawExemplars(slices.Clone(row.Value), f.r.deletes.OfSeries(m.labels[at]))
			if err != nil {
				f.r.reportCorrupt(&damage.CorruptRowError{
					Table: engine.Raw, Window: src.window.window, Tenant: f.r.tenant, Metric: src.metric,
					Series: m.ids[at].String(), Start: row.Clustering[1].Int, Err: err,
				})
				return nil
			}
			f.addSeries(m.ids[at], m.labels[at], src.hidden, list)
			return nil
		})
	}
	key := func(slot int64) engine.Key {
		return engine.Key{engine.Int(format.KindExemplars), engine.Int(p.SlotStart(slot))}
	}
	if len(positions)*f.r.env.SeekRows >= m.size() {
		return scan(key(slots[0]), key(slots[len(slots)-1]))
	}
	first, last := m.ids[positions[0]], m.ids[positions[len(positions)-1]]
	for _, slot := range slots {
		from, to := append(key(slot), engine.Text(first.String())), append(key(slot), engine.Text(last.String()))
		if err := scan(from, to); err != nil {
			return err
		}
	}
	return nil
}

// results returns the found exemplars in the form that Exemplars returns.
func (f *exemplarFinder) results() ([]exemplar.QueryResult, error) {
	out := make([]exemplar.QueryResult, 0, len(f.found))
	builder := labels.NewScratchBuilder(4)
	for id, found := range f.found {
		r := exemplar.QueryResult{SeriesLabels: found.labels}
		for _, e := range f.limitPerSlot(found.list) {
			if e.T < f.r.minT || e.T > f.r.maxT {
				continue
			}
			x, err := format.ParseExemplar(e.T, e.Data, &builder)
			if err != nil {
				f.r.reportCorrupt(&damage.CorruptRowError{
					Table: engine.Raw, Tenant: f.r.tenant, Metric: found.labels.Get(labels.MetricName),
					Series: id.String(), Err: err,
				})
				continue
			}
			r.Exemplars = append(r.Exemplars, x)
		}
		if len(r.Exemplars) > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b exemplar.QueryResult) int { return labels.Compare(a.SeriesLabels, b.SeriesLabels) })
	return out, nil
}

// limitPerSlot sorts the exemplars of a series, and limits their number per slot.
func (f *exemplarFinder) limitPerSlot(list []format.Exemplar) (kept []format.Exemplar) {
	slices.SortFunc(list, format.Exemplar.Compare)
	for len(list) > 0 {
		end := f.r.env.Period.SlotEnd(f.r.env.Period.SlotOf(list[0].T))
		n := 0
		for n < len(list) && list[n].T <= end {
			n++
		}
		kept = append(kept, format.SelectExemplars(list[:n])...)
		list = list[n:]
	}
	return kept
}
