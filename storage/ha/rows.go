package ha

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// Rows reads elections and held rows. It neither elects replicas nor writes.
type Rows struct {
	Engine engine.Engine
	// Corrupt is called for unreadable rows.
	Corrupt func(*engine.Table, error)
}

// eachElection calls f for each cluster of a tenant. It stops at the first error.
func (r Rows) eachElection(ctx context.Context, tenant string, f func(cluster string, ch *election) error) error {
	key := engine.Key{engine.Text(tenant)}
	for bucket := range int64(electionBuckets) {
		for row, err := range r.Engine.Scan(ctx, engine.Range{
			Table: engine.Chosen, Partition: engine.Key{engine.Int(bucket)}, From: key, To: key,
		}) {
			if err != nil {
				return fmt.Errorf("ha: reading the elected replicas: %w", err)
			}
			cluster := strings.Clone(row.Clustering[1].Text)
			ch, err := parseElection(row.Value)
			if err != nil {
				r.Corrupt(engine.Chosen, fmt.Errorf(
					"the record of the elected replica of cluster %q, tenant %q, is unreadable: %w", cluster, tenant,
					err,
				))
				continue // Without the election, its held samples can't be stored either.
			}
			if err := f(cluster, &ch); err != nil {
				return err
			}
		}
	}
	return nil
}

// EachHeld calls f for each held row of a tenant.
func (r Rows) EachHeld(ctx context.Context, tenant string, f func(cluster, writer string, seq int64)) error {
	return r.eachElection(ctx, tenant, func(cluster string, ch *election) error {
		for era := ch.Low; era <= ch.heldEpoch(); era++ {
			for row, err := range r.Engine.Scan(ctx, engine.Range{
				Table: engine.Held, Partition: format.HeldPartition(tenant, cluster, era), KeysOnly: true,
			}) {
				if err != nil {
					return fmt.Errorf("ha: listing held samples: %w", err)
				}
				f(cluster, row.Clustering[1].Text, row.Clustering[2].Int)
			}
		}
		return nil
	})
}

// Cuts returns, for each cluster and writer of a tenant, the highest sequence number of the rows that the writer holds
// for the cluster.
func (r Rows) Cuts(ctx context.Context, tenant string) (cuts []format.HeldCut, err error) {
	err = r.EachHeld(ctx, tenant, func(cluster, writer string, seq int64) {
		i := slices.IndexFunc(cuts, func(c format.HeldCut) bool { return c.Cluster == cluster && c.Writer == writer })
		if i < 0 {
			cuts = append(cuts, format.HeldCut{Cluster: cluster, Writer: strings.Clone(writer), Seq: seq})
			return
		}
		cuts[i].Seq = max(cuts[i].Seq, seq)
	})
	return cuts, err
}

// Takers returns the processes that are storing held samples of a tenant's newly elected replicas. A process is
// identified by its writer, in hexadecimal.
func (r Rows) Takers(ctx context.Context, tenant string) (writers []string, err error) {
	err = r.eachElection(ctx, tenant, func(_ string, ch *election) error {
		if ch.Taking != "" {
			writers = append(writers, ch.Taking)
		}
		return nil
	})
	return writers, err
}
