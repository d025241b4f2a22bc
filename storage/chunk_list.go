package storage

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"github.com/cassia-db/cassia/storage/engine"
)

// chunkList are the versions of the raw chunks of some series in some slots; nil where there are too many others among
// them to look for them all at once.
type chunkList map[chunkAt][]string

type chunkAt struct {
	start  int64
	series SeriesID
}

// has says whether a series may have chunks in the slot that starts then.
func (l chunkList) has(start int64, id SeriesID) bool {
	return l == nil || len(l[chunkAt{start, id}]) > 0
}

// metricChunks are the raw chunks of a metric that start from one time to another, in a window, of so many shards.
type metricChunks struct {
	window         int64
	tenant, metric string
	shards         int64
	first, last    int64
}

// listChunks adds the chunks of some series of a metric to found.
func (s *Store) listChunks(ctx context.Context, of metricChunks, series []*Series, found chunkList) error {
	some := chunkList{}
	whole, err := s.listAmong(ctx, of, series, some)
	if err != nil {
		return err
	}
	if !whole {
		for _, x := range series {
			if err := s.listOne(ctx, of, x, found); err != nil {
				return err
			}
		}
		return nil
	}
	maps.Copy(found, some)
	return nil
}

// listAmong lists the chunks of some series in one go, with those of all others between. It gives up where these are too many.
func (s *Store) listAmong(ctx context.Context, of metricChunks, series []*Series, found chunkList) (whole bool, err error) {
	ids, places := make(map[SeriesID]bool, len(series)), map[classShard]bool{}
	from, to := series[0].id, series[0].id
	for _, x := range series {
		ids[x.id] = true
		if bytes.Compare(x.id[:], from[:]) < 0 {
			from = x.id
		}
		if bytes.Compare(x.id[:], to[:]) > 0 {
			to = x.id
		}
		for at := range s.placesOf(x.id, of.shards) {
			places[at] = true
		}
	}
	first := engine.Key{engine.Int(kindChunk), engine.Int(of.first), engine.Text(from.String())}
	last := engine.Key{engine.Int(kindChunk), engine.Int(of.last), engine.Text(to.String())}
	others := 0
	for at := range places {
		for row, err := range s.eng.Scan(ctx, engine.Range{
			Table: engine.Raw, Partition: seriesPartition(of.window, of.tenant, of.metric, at), From: first, To: last, KeysOnly: true,
		}) {
			if err != nil {
				return false, fmt.Errorf("storage: listing the chunks of %q: %w", of.metric, err)
			}
			key := chunkAt{start: row.Clustering[1].Int}
			copy(key.series[:], row.Clustering[2].Text)
			if !ids[key.series] {
				if others++; others > 50*len(series)+1000 {
					return false, nil
				}
				continue
			}
			found[key] = append(found[key], string([]byte(row.Clustering[3].Text)))
		}
	}
	return true, nil
}

// listOne lists the chunks of one series, slot by slot.
func (s *Store) listOne(ctx context.Context, of metricChunks, x *Series, found chunkList) error {
	for slot := s.period.slotOf(of.first + 1); s.period.slotStart(slot) <= of.last; slot++ {
		at := chunkAt{s.period.slotStart(slot), x.id}
		key := engine.Key{engine.Int(kindChunk), engine.Int(at.start), engine.Text(x.id.String())}
		for in := range s.placesOf(x.id, of.shards) {
			for row, err := range s.eng.Scan(ctx, engine.Range{
				Table: engine.Raw, Partition: seriesPartition(of.window, of.tenant, of.metric, in), From: key, To: key, KeysOnly: true,
			}) {
				if err != nil {
					return fmt.Errorf("storage: listing the chunks of %s: %w", x.labels, err)
				}
				found[at] = append(found[at], string([]byte(row.Clustering[3].Text)))
			}
		}
	}
	return nil
}
