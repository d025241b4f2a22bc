package counts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// errNoCounts means that a window has no readable counts for its current state.
var errNoCounts = errors.New("storage: the series of the window have not been counted")

// StoredCounts returns the stored counts of a window's series for a state. It returns nil if the series must be
// counted.
func (s *Statistics) StoredCounts(ctx context.Context, tenant string, window int64, state uint64) *format.Counts {
	if !s.MayHaveCounts(window) {
		return nil
	}
	v, err := s.env.Cache.Get(ctx, cache.EntryKey{Kind: cache.KindStored, Window: window, Tenant: tenant}, state,
		func(ctx context.Context) (cache.EntryValue, error) {
			c, err := s.readCounts(ctx, tenant, window, state)
			if err != nil {
				return nil, err
			}
			return (*cachedStoredCounts)(c), nil
		})
	if err != nil {
		return nil
	}
	return (*format.Counts)(v.(*cachedStoredCounts))
}

// cachedStoredCounts is the cache entry of stored counts.
type cachedStoredCounts format.Counts

func (c *cachedStoredCounts) Bytes() (n int64) {
	list := func(counts []Count) {
		for i := range counts {
			n += int64(len(counts[i].Name)) + textBytes + 8
		}
	}
	list(c.Metrics)
	for i := range c.Labels {
		list(c.Labels[i].Values)
		n += int64(len(c.Labels[i].Name)) + textBytes + 32
	}
	return n
}

// readCounts reads the counts of a window's series for a state. It returns errNoCounts if there are none. If the counts
// are unreadable, it reports this and also returns errNoCounts.
func (s *Statistics) readCounts(
	ctx context.Context, tenant string, window int64, state uint64,
) (c *format.Counts, err error) {
	var head format.CountsHead
	var body []byte
	bad, rows := error(nil), 0
	err = s.scanCounts(ctx, engine.Range{
		Partition: format.CountsPartition(window, tenant), From: format.CountsKey(state, 0),
		To: format.CountsKey(state, format.MaxCountsParts),
	}, func(row engine.Row) (err error) {
		if rows++; rows == 1 {
			head, err = format.ParseCountsHead(row.Value)
		} else {
			body, err = format.AppendCountsPart(body, row.Value)
		}
		if err != nil && bad == nil {
			bad = err
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case rows == 0:
		return nil, errNoCounts
	case bad == nil:
		c, bad = format.ParseCounts(head, body)
	}
	if bad != nil {
		s.reportBadCounts(tenant, window, bad)
		return nil, errNoCounts
	}
	return c, nil
}

// reportBadCounts reports unreadable counts once, and causes the series to be counted again.
func (s *Statistics) reportBadCounts(tenant string, window int64, bad error) {
	s.env.Memory.SetNote(tenant, window, countsUnreadable)
	if !errors.Is(bad, format.ErrCountsMismatch) {
		s.env.Note(engine.Catalog, fmt.Errorf(
			"storage: reading the series counts of window %d of tenant %q failed, so they are counted again: %w",
			window, tenant, bad,
		))
	}
}

// scanCounts scans rows of counts. Unreadable rows are skipped and reported, and the series will be counted again.
func (s *Statistics) scanCounts(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
	rows.Table = engine.Catalog
	rows.Damaged = func(d engine.Damage) { s.reportBadCounts(rows.Partition[2].Text, rows.Partition[0].Int, d.Err) }
	return s.env.ScanCounts(ctx, rows, row)
}

// storedSeries holds the stored number of series of a window, and the stored change since the previous window. Each is
// nil if it isn't stored.
type storedSeries struct {
	head   *format.CountsHead
	change *format.CountsChange
}

// storedSeries reads the stored number of series of a window for its state, and the stored change since the previous
// window, whose state is before. before is 0 if the windows aren't compared.
func (s *Statistics) storedSeries(
	ctx context.Context, tenant string, window int64, state, before uint64,
) (found storedSeries) {
	if !s.MayHaveCounts(window) {
		return found
	}
	head, change := format.CountsKey(state, 0), format.CountsChangeKey(state, before)
	err := s.scanCounts(ctx, engine.Range{
		Partition: format.CountsPartition(window, tenant), From: format.CountsChangeKey(state, 0), To: head,
	}, func(row engine.Row) error {
		var err error
		switch key := row.Clustering[0].Text; {
		case key == head[0].Text:
			var h format.CountsHead
			if h, err = format.ParseCountsHead(row.Value); err == nil {
				found.head = &h
			}
		case key == change[0].Text && before != 0:
			var c format.CountsChange
			if c, err = format.ParseCountsChange(row.Value); err == nil {
				found.change = &c
			}
		}
		if err != nil {
			s.reportBadCounts(tenant, window, err)
		}
		return nil
	})
	if err != nil {
		return storedSeries{}
	}
	return found
}

// answerFromCounts answers a query from stored counts. ok is false if they don't contain all counts that the query
// needs.
func answerFromCounts(c *format.Counts, q SeriesQuery) (answer SeriesCounts, ok bool) {
	if q.Metric != "" {
		return answer, false
	}
	answer = SeriesCounts{Series: int64(c.Series), AllMetrics: int(c.AllMetrics), AllLabels: int(c.AllLabels)}
	names := make([]Count, len(c.Labels))
	for i := range c.Labels {
		names[i] = c.Labels[i].NamedCount
	}
	var fits [3]bool
	answer.Metrics, fits[0] = firstEntries(c.Metrics, c.AllMetrics, q.Limit)
	answer.Labels, fits[1] = firstEntries(names, c.AllLabels, q.Limit)
	at := slices.IndexFunc(c.Labels, func(l format.LabelCounts) bool { return l.Name == q.Label })
	switch {
	case q.Label == labels.MetricName:
		answer.Values, fits[2] = answer.Metrics, fits[0]
	case at >= 0:
		answer.Values, fits[2] = firstEntries(c.Labels[at].Values, c.Labels[at].Count, q.Limit)
	default:
		fits[2] = len(c.Labels) == int(c.AllLabels)
	}
	return answer, fits == [3]bool{true, true, true}
}

// firstEntries returns the first limit entries of a list. The list contains the largest counts; of is the number of all
// counts. ok is false if the list has too few entries.
func firstEntries(list []Count, of uint64, limit int) (first []Count, ok bool) {
	limit = max(0, limit)
	if len(list) < limit && uint64(len(list)) < of {
		return nil, false
	}
	if n := min(limit, len(list)); n > 0 {
		first = slices.Clone(list[:n])
	}
	return first, true
}
