package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	promapi "github.com/prometheus/prometheus/web/api/v1"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Number of entries of the lists of status/tsdb, by default and at most, as in Prometheus.
const (
	defaultTSDBEntries = 10
	maxTSDBEntries     = 10_000
)

// Cardinality returns statistics of a tenant's unsealed series. limit bounds its lists.
type Cardinality func(ctx context.Context, tenant string, limit int) (counts.Cardinality, error)

// serveTSDB returns statistics of the tenant's series in the head. Only one request at a time counts series, because
// counting takes memory.
func (a *api) serveTSDB(w http.ResponseWriter, r *http.Request) {
	limit := defaultTSDBEntries
	if s := r.FormValue("limit"); s != "" {
		var err error
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 {
			a.fail(w, r, http.StatusBadRequest, "bad_data", "limit must be a positive number")
			return
		}
		if limit > maxTSDBEntries {
			a.fail(w, r, http.StatusBadRequest, "bad_data", fmt.Sprintf("limit must not exceed %d", maxTSDBEntries))
			return
		}
	}
	if len(tenant.NamesFromContext(r.Context())) > 1 {
		a.fail(w, r, http.StatusBadRequest, "bad_data", "the status covers one tenant at a time; name one tenant")
		return
	}
	select {
	case a.counting <- struct{}{}:
		defer func() { <-a.counting }()
	case <-r.Context().Done():
		return
	}
	c, err := a.Cardinality(r.Context(), tenant.FromContext(r.Context()), limit)
	if err != nil {
		a.failWith(w, r, err)
		return
	}
	a.respond(w, r, promapi.TSDBStatus{
		HeadStats: promapi.HeadStats{
			NumSeries: uint64(c.Series), NumLabelPairs: int(c.LabelPairs), ChunkCount: c.Chunks, MinTime: c.MinT,
			MaxTime: c.MaxT,
		},
		SeriesCountByMetricName: tsdbStats(c.SeriesOfMetrics), LabelValueCountByLabelName: tsdbStats(c.ValuesOfLabels),
		MemoryInBytesByLabelName: tsdbStats(c.BytesOfLabels), SeriesCountByLabelValuePair: tsdbStats(c.SeriesOfPairs),
	})
}

func tsdbStats(counts []counts.Count) []promapi.TSDBStat {
	out := make([]promapi.TSDBStat, 0, len(counts))
	for _, c := range counts {
		out = append(out, promapi.TSDBStat{Name: c.Name, Value: c.Count})
	}
	return out
}
