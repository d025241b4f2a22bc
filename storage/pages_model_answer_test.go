package storage

import (
	"context"
	"errors"
	"math"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// endedQuery runs a query of everything that is canceled after some steps of the engine.
func (r *pagesRun) endedQuery() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.mu.Lock()
	r.cut = r.cut*5%499 + 1
	r.eng.cutAt(r.cut, cancel)
	r.mu.Unlock()
	for _, res := range []rollup.Resolution{rollup.Raw, rollup.OneHour} {
		if a := r.answer(ctx, res); a != nil {
			if problem := r.model.judge(a); problem != "" {
				r.fail("of a query that was ended too late: %s", problem)
			}
		}
	}
	r.eng.cutAt(0, cancel)
}

// look compares the store's answers with the model.
func (r *pagesRun) look() {
	r.endedQuery()
	if a := r.answer(context.Background(), rollup.Raw, rollup.FiveMinutes, rollup.OneHour); a != nil &&
		r.problem == "" {
		if problem := r.model.judge(a); problem != "" {
			r.fail("%s", problem)
		}
	}
}

// answer reads all samples and buckets of the given resolutions. It returns nil if the context was canceled.
func (r *pagesRun) answer(ctx context.Context, resolutions ...rollup.Resolution) *pagesAnswer {
	a := &pagesAnswer{raw: map[string]map[int64]float64{}, until: r.opts.Now().Add(MaxAhead).UnixMilli()}
	r.tell(a)
	for _, res := range resolutions {
		found, err := r.Select(ctx, query.Query{
			Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
			Warn:     func(err error) { r.fail("a warning: %v", err) },
		})
		for i := 0; i < len(found) && err == nil; i++ {
			err = a.read(res, found[i])
		}
		if err != nil {
			if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
				r.fail("asking: %v", err)
			}
			return nil
		}
	}
	r.tell(a) // Again, because windows may have expired since.
	if a.buckets != nil && len(resolutions) == 1 {
		return nil // Without samples there is nothing to compare buckets with.
	}
	return a
}

// tell raises a.told to the times up to which rows may be hidden. The time of a group is the latest one of all classes
// that the group was in.
func (r *pagesRun) tell(a *pagesAnswer) {
	shown, err := r.retention.VisibleRows(context.Background(), "t", -format.MaxTime, format.MaxTime, false)
	if err != nil {
		r.fail("asking for horizons: %v", err)
		return
	}
	if a.told == nil {
		a.told = map[byte][resolutions]int64{}
	}
	for group, classes := range r.classesOf {
		told, before := a.told[group]
		if !before {
			told = [resolutions]int64{math.MinInt64, math.MinInt64, math.MinInt64}
		}
		for class := range classes {
			for res, at := range shown.Hidden[class].At {
				if at > -format.MaxTime {
					told[res] = max(told[res], at)
				}
			}
		}
		a.told[group] = told
	}
}

func (a *pagesAnswer) read(res rollup.Resolution, s *query.SelectedSeries) error {
	name := s.Labels.String()
	if res == rollup.Raw {
		var samples chunk.Samples
		if err := s.Samples(&samples); err != nil {
			return err
		}
		a.raw[name] = map[int64]float64{}
		for i, t := range samples.T {
			a.raw[name][t] = samples.V[i]
		}
		return nil
	}
	if a.buckets == nil {
		a.buckets = map[pagesBucket]bucketFacts{}
	}
	var b rollup.Buckets
	if err := s.Buckets(&b, &query.BucketBuffers{}); err != nil {
		return err
	}
	for i, end := range b.End {
		a.buckets[pagesBucket{name, end, res}] = bucketFacts{int(b.Count[i]), b.Max[i]}
	}
	return nil
}
