package storage

import "github.com/cassia-db/cassia/storage/query"

// openQuerier creates the querier.
func (s *Store) openQuerier() {
	s.Querier = query.New(query.Env{
		Period: s.period, Head: s.head, Rows: s.rows, Engine: s.eng, Versions: s.versions, Cache: s.cache,
		Memory: &s.known, Damage: s.damage, Retention: s.retention,
		Limiter: s.opts.Limiter, QueryBytes: s.opts.QueryBytes, Now: s.opts.Now, MaxAhead: MaxAhead,
		SeekRows: s.workSizes().seekRows, GroupRows: s.workSizes().groupRows, SpannedSeries: s.opts.seams.spannedSeries,
		Ready: s.Ready, CatchUp: s.catchUp, Deletes: s.loadTombstones, UnreadDelete: s.unreadDelete,
		Windows: s.windowsSkipping, Shards: s.shardsValue,
		Unrolled:   s.listUnrolledExcept,
		StartsFrom: s.starts.DeltasAfter,
	})
}
