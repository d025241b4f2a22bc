package ruler

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/rules"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// These are the names of the series that Prometheus stores for alerts.
const (
	alertsMetric   = "ALERTS"
	forStateMetric = "ALERTS_FOR_STATE"
)

// probeSeries is the number of series of a rule that are read to find its last evaluation.
const probeSeries = 100

// lastStored finds the newest time up to due for which a group has stored results. It searches back over the time for
// which missed evaluations are caught up, and at least two intervals: if the interval is long, even a short outage may
// contain an evaluation.
func (r *Ruler) lastStored(ctx context.Context, g *rules.Group, due time.Time) (last time.Time, found bool, err error) {
	times := max(2, min(int64(r.o.CatchUpTimes), int64(r.o.CatchUp/g.Interval())))
	slots := make(map[int64]time.Time, times+1)
	for i := range times + 1 {
		slot := due.Add(-time.Duration(i) * g.Interval())
		slots[timestamp.FromTime(slot.Add(-g.QueryOffset()))] = slot
	}
	from, to := due.Add(-time.Duration(times)*g.Interval()), due
	for _, rule := range g.Rules() {
		err = r.eachStoredSample(ctx, g, rule, from, to, probeSeries, func(_ labels.Labels, t int64, _ float64) error {
			if slot, ok := slots[t]; ok && (!found || slot.After(last)) {
				last, found = slot, true
			}
			return nil
		})
		if err != nil {
			return time.Time{}, false, err
		}
	}
	return last, found, nil
}

// errUnconfirmed is the error of an evaluation whose results aren't stored because another process may own the rules.
var errUnconfirmed = errors.New("ruler: another process may be evaluating the rules")

// leftoverSeries holds the stored results of a rule's last evaluation by another process.
type leftoverSeries struct {
	rule   rules.Rule
	series []labels.Labels
}

// findStored finds the results that a group's rules have already stored for the time at. An evaluation at this time
// must not change them. leftovers is true if their labels are needed. The memory is charged to the account of ctx as
// found bytes.
func (m *manager) findStored(ctx context.Context, g *rules.Group, at time.Time, leftovers bool) *storedResults {
	account := accountOf(ctx)
	s := &storedResults{existing: map[uint64]struct{}{}, series: map[uint64]struct{}{}}
	for _, rule := range g.Rules() {
		of := leftoverSeries{rule: rule}
		err := m.r.eachStoredSample(ctx, g, rule, at, at, 0, func(ls labels.Labels, _ int64, v float64) error {
			n := int64(2 * hashBytes)
			if leftovers && !value.IsStaleNaN(v) {
				bytes := leftoverBytes + textBytes(int(ls.ByteSize()))
				n += bytes
				s.leftoverBytes += bytes
				of.series = append(of.series, ls)
			}
			s.existing[ls.Hash()] = struct{}{}
			return account.addFound(n)
		})
		if err != nil {
			g.Logger().Warn("can't read the previously stored results; rules continue without them", "at", at, "err",
				err)
			return s
		}
		s.leftovers = append(s.leftovers, of)
	}
	return s
}

// writeStaleMarkers writes stale markers at the time at. left are the series of another process' last evaluation, and
// seen are the series of the evaluation at this time. Series that are only in left get a stale marker, as in Prometheus
// between two evaluations, unless their rule has failed.
func (m *manager) writeStaleMarkers(ctx context.Context, g *rules.Group, left []leftoverSeries, seen *storedResults,
	at time.Time) {
	app := m.r.o.Appendable.Appender(ctx)
	t := timestamp.FromTime(at.Add(-g.QueryOffset()))
	for _, l := range left {
		if l.rule.Health() != rules.HealthGood {
			continue
		}
		for _, ls := range l.series {
			if seen.contains(ls) {
				continue
			}
			if _, err := app.Append(0, ls, t, math.Float64frombits(value.StaleNaN)); err != nil {
				g.Logger().Warn("Adding stale sample failed", "sample", ls, "err", err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		g.Logger().Warn("Stale sample appending failed", "err", err)
	}
}

// maxReadings is the maximum number of groups that read stored results at once. The memory of each reading is limited
// by the bytes that a query may read.
const maxReadings = 2

// startReading waits until stored results may be read. Unless it returns the error of ctx, the caller must call done
// after reading.
func (r *Ruler) startReading(ctx context.Context) (done func(), err error) {
	select {
	case r.readings <- struct{}{}:
		return func() { <-r.readings }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// restoreForState restores the time since which the alerts of a group have been active, at the time at.
func (r *Ruler) restoreForState(ctx context.Context, g *rules.Group, at time.Time) {
	done, err := r.startReading(ctx)
	if err != nil {
		return // The evaluation was canceled.
	}
	defer done()
	g.RestoreForState(at)
}

// eachStoredSample calls tell with the samples that a rule has stored from one evaluation to another, both included. It
// reads at most limit series per name, or all if limit is 0. The value of a histogram is 0. It ends with the error of
// tell.
func (r *Ruler) eachStoredSample(
	ctx context.Context, g *rules.Group, rule rules.Rule, from, to time.Time, limit int,
	tell func(ls labels.Labels, t int64, v float64) error,
) error {
	hints := &promstorage.SelectHints{
		Start: timestamp.FromTime(from.Add(-g.QueryOffset())), End: timestamp.FromTime(to.Add(-g.QueryOffset())),
		Limit: limit,
	}
	done, err := r.startReading(ctx)
	if err != nil {
		return err
	}
	defer done()
	q, err := r.o.Queryable.Querier(hints.Start, hints.End)
	if err != nil {
		return err
	}
	defer q.Close()
	for _, matchers := range resultMatchers(rule) {
		set := q.Select(ctx, false, hints, matchers...)
		var it chunkenc.Iterator
		for set.Next() {
			it = set.At().Iterator(it)
			for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
				t, v := it.AtT(), 0.0
				if kind == chunkenc.ValFloat {
					t, v = it.At()
				}
				if err := tell(set.At().Labels(), t, v); err != nil {
					return err
				}
			}
			if err := it.Err(); err != nil {
				return err
			}
		}
		if err := set.Err(); err != nil {
			return err
		}
	}
	return nil
}

// resultMatchers returns matchers of the series that a rule stores.
func resultMatchers(rule rules.Rule) [][]*labels.Matcher {
	names := []string{rule.Name()}
	var common []*labels.Matcher
	if _, alerts := rule.(*rules.AlertingRule); alerts {
		names = []string{alertsMetric, forStateMetric}
		common = append(common, labels.MustNewMatcher(labels.MatchEqual, labels.AlertName, rule.Name()))
	}
	rule.Labels().Range(func(l labels.Label) {
		if !strings.Contains(l.Value, "{{") { // A template has a different text for each alert.
			common = append(common, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value))
		}
	})
	var all [][]*labels.Matcher
	for _, name := range names {
		all = append(all, append([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)},
			common...))
	}
	return all
}

// hashBytes is the size of a series in a set of storedResults, in bytes. leftoverBytes is the size of a series of
// leftovers, without the text of its labels.
const hashBytes, leftoverBytes = 20, 32

// storedResults records the series of an evaluation.
type storedResults struct {
	// existing contains the hashes of the series that already have a sample at the time of the evaluation. leftovers
	// contains the labels of these series, by rule, without series that end at that time. Both are read-only.
	existing  map[uint64]struct{}
	leftovers []leftoverSeries
	// leftoverBytes are the charged bytes of leftovers.
	leftoverBytes int64

	mu     sync.Mutex
	series map[uint64]struct{}
}

// add records a series, and reports whether it already has a sample.
func (s *storedResults) add(ls labels.Labels) (there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := ls.Hash()
	s.series[hash] = struct{}{}
	_, there = s.existing[hash]
	return there
}

func (s *storedResults) contains(ls labels.Labels) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.series[ls.Hash()]
	return ok
}

type storedResultsKey struct{}

// withStoredResults returns a context whose appenders record the series of appended samples in s. The appenders skip
// samples of series that already have a sample in s.
func withStoredResults(ctx context.Context, s *storedResults) context.Context {
	return context.WithValue(ctx, storedResultsKey{}, s)
}

// recordingAppendable is the Appendable of managers. Its appenders record series (see withStoredResults), and store
// nothing while another process may own the rules.
type recordingAppendable struct {
	promstorage.Appendable
	r *Ruler
}

// Appender implements promstorage.Appendable.
func (a recordingAppendable) Appender(ctx context.Context) promstorage.Appender {
	s, _ := ctx.Value(storedResultsKey{}).(*storedResults)
	return recordingAppender{a.Appendable.Appender(ctx), a.r, s}
}

type recordingAppender struct {
	promstorage.Appender
	r      *Ruler
	stored *storedResults // or nil
}

// Append implements promstorage.Appender.
func (a recordingAppender) Append(ref promstorage.SeriesRef, ls labels.Labels, t int64,
	v float64) (promstorage.SeriesRef, error) {
	if a.stored != nil && a.stored.add(ls) {
		return ref, nil
	}
	return a.Appender.Append(ref, ls, t, v)
}

// AppendHistogram implements promstorage.Appender.
func (a recordingAppender) AppendHistogram(ref promstorage.SeriesRef, ls labels.Labels, t int64, h *histogram.Histogram,
	fh *histogram.FloatHistogram) (promstorage.SeriesRef, error) {
	if a.stored != nil && a.stored.add(ls) {
		return ref, nil
	}
	return a.Appender.AppendHistogram(ref, ls, t, h, fh)
}

// Commit implements promstorage.Appender. It stores nothing if another process may have taken over the rules.
func (a recordingAppender) Commit() error {
	if !a.r.isConfirmed() {
		a.r.refused.Add(1)
		return errors.Join(errUnconfirmed, a.Appender.Rollback())
	}
	return a.Appender.Commit()
}
