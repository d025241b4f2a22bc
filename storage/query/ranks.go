package query

import (
	"context"
	"encoding/binary"
	"hash/maphash"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/labelorder"
)

// Series are read in the order of their ids, but many results are ordered by labels. Sorting a million series by their
// labels takes as long as reading them, and a repeated query finds the same series again. Therefore the order of a
// large result is cached:
//
//	ids of the series ─► hash ─┬─► in the cache: ranks
//	                           └─► sort by labels ─► ranks, cached
//
// Each id identifies a set of labels, so a list of ids determines the order.

// rankedSeries is the minimum number of series for which ranks are cached.
const rankedSeries = 4096

// rankSeed seeds the hashes of ids. It is random, so that clients can't construct lists of ids with the same hash.
var rankSeed = maphash.MakeSeed()

// Ranks computes the ranks of a result's series, or reads them from the cache. The rank of a series is its index in the
// order of labels.
type Ranks struct {
	env    *Env
	series []*SelectedSeries
	key    cache.EntryKey
}

// labelRanks holds the ranks of series, in the order of the series. It is immutable.
type labelRanks []uint32

func (r labelRanks) Bytes() int64 { return int64(4 * len(r)) }

// RanksOf returns the Ranks of the series in a tenant's result. It returns nil for short results, because sorting them
// costs less.
func (q *Querier) RanksOf(tenant string, series []*SelectedSeries) *Ranks {
	if len(series) < rankedSeries {
		return nil
	}
	var hash maphash.Hash
	hash.SetSeed(rankSeed)
	for _, s := range series {
		_, _ = hash.Write(s.id[:])
	}
	text := binary.LittleEndian.AppendUint64(nil, hash.Sum64())
	return &Ranks{
		env: &q.env, series: series, key: cache.EntryKey{Kind: cache.KindRanks, Tenant: tenant, Text: string(text)},
	}
}

// Cached returns the ranks if they are cached. Otherwise it returns nil. The caller must not modify them.
func (r *Ranks) Cached() []uint32 {
	v, ok := r.env.Cache.GetCached(r.key, r.version())
	if !ok {
		return nil
	}
	return v.(labelRanks)
}

// Get returns the ranks. The caller must not modify them.
func (r *Ranks) Get(ctx context.Context) ([]uint32, error) {
	v, err := r.env.Cache.Get(ctx, r.key, r.version(), func(context.Context) (cache.EntryValue, error) {
		found := make(labelRanks, len(r.series))
		for rank, at := range labelorder.Order(r.series, func(s *SelectedSeries) labels.Labels { return s.Labels }) {
			found[at] = uint32(rank)
		}
		return found, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(labelRanks), nil
}

// version returns the number of series, which is the version of the cache entry. It distinguishes lists of different
// lengths that have the same hash.
func (r *Ranks) version() uint64 { return uint64(len(r.series)) }

// sortByLabels sorts the selection's series by their labels.
func (sel *selection) sortByLabels(tenant string) error {
	r := sel.r.RanksOf(tenant, sel.series)
	if r == nil {
		labelorder.Sort(sel.series, func(s *SelectedSeries) labels.Labels { return s.Labels })
		return nil
	}
	ranks, err := r.Get(sel.ctx)
	if err != nil {
		return err
	}
	sorted := make([]*SelectedSeries, len(sel.series))
	for i, s := range sel.series {
		sorted[ranks[i]] = s
	}
	sel.series = sorted
	return nil
}
