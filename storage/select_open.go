package storage

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// openSeries is a series with unsealed samples, as it was when a query began. Later samples may show.
type openSeries struct {
	id     format.SeriesID
	labels labels.Labels
	class  int64
	hidden int64 // the newest timestamp that is no longer kept
	gaps   []classGap
	// unsealed are its samples.
	unsealed head.Snapshot
}

// samples appends the series' unsealed samples that may lie in [minT, maxT], in no particular order.
func (o *openSeries) samples(minT, maxT int64, into *chunk.Samples) error {
	if o.hidden < minT && len(o.gaps) == 0 {
		return o.unsealed.Read(minT, maxT, into)
	}
	for _, span := range outsideGaps(o.gaps, o.class, max(minT, o.hidden+1), maxT) {
		var all chunk.Samples
		if err := o.unsealed.Read(span.MinT, span.MaxT, &all); err != nil {
			return err
		}
		all.Normalize()
		all.Clip(span.MinT, span.MaxT)
		into.AppendAll(&all)
	}
	return nil
}

// selectOpen returns the series that match and have unsealed samples in [minT, maxT]. Samples sealed
// afterwards stay readable through it.
func (s *Store) selectOpen(ctx context.Context, tenant string, ms []*labels.Matcher, minT, maxT int64) (out []openSeries, err error) {
	metered := func(n int) bool {
		err = Grow(ctx, int64(n)*openBytes)
		return err == nil
	}
	for series, unsealed := range s.head.SelectMetered(tenant, ms, minT, maxT, metered) {
		out = append(out, openSeries{id: series.ID(), labels: series.Labels(), class: series.Class(), unsealed: unsealed})
	}
	return out, err
}

// HeadStats counts what the head holds, of all tenants.
func (s *Store) HeadStats() head.Stats { return s.head.Stats() }
