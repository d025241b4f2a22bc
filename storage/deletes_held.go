package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// eachChoice calls f for the clusters of a tenant, until it returns an error.
func (s *Store) eachChoice(ctx context.Context, tenant string, f func(cluster string, ch *election) error) error {
	key := engine.Key{engine.Text(tenant)}
	for bucket := range int64(electionBuckets) {
		for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Chosen, Partition: engine.Key{engine.Int(bucket)}, From: key, To: key}) {
			if err != nil {
				return fmt.Errorf("storage: reading the choices of replicas: %w", err)
			}
			cluster := strings.Clone(row.Clustering[1].Text)
			ch, err := parseElection(row.Value)
			if err != nil {
				s.corrupt(engine.Chosen, fmt.Errorf("cluster %q of tenant %q: %w", cluster, tenant, err))
				continue // Nobody can store what is held of it, either.
			}
			if err := f(cluster, &ch); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachHeld calls f for the held rows of a tenant.
func (s *Store) eachHeld(ctx context.Context, tenant string, f func(cluster, writer string, seq int64)) error {
	return s.eachChoice(ctx, tenant, func(cluster string, ch *election) error {
		for era := ch.Low; era <= ch.heldEpoch(); era++ {
			for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Held, Partition: format.HeldPartition(tenant, cluster, era), KeysOnly: true}) {
				if err != nil {
					return fmt.Errorf("storage: listing held rows: %w", err)
				}
				f(cluster, row.Clustering[1].Text, row.Clustering[2].Int)
			}
		}
		return nil
	})
}

// heldCuts returns how far what is held of a tenant's replicas goes.
func (s *Store) heldCuts(ctx context.Context, tenant string) (cuts []format.HeldCut, err error) {
	err = s.eachHeld(ctx, tenant, func(cluster, writer string, seq int64) {
		i := slices.IndexFunc(cuts, func(c format.HeldCut) bool { return c.Cluster == cluster && c.Writer == writer })
		if i < 0 {
			cuts = append(cuts, format.HeldCut{Cluster: cluster, Writer: strings.Clone(writer), Seq: seq})
			return
		}
		cuts[i].Seq = max(cuts[i].Seq, seq)
	})
	return cuts, err
}

// withHeld returns the ids of the deletes that are about rows that are held still.
func (s *Store) withHeld(ctx context.Context, tenant string, ds format.Tombstones) (map[string]bool, error) {
	ids := map[string]bool{}
	if ds = ds.Where(func(d *format.Tombstone) bool { return len(d.Held) > 0 }); len(ds) == 0 {
		return ids, nil
	}
	return ids, s.eachHeld(ctx, tenant, func(cluster, writer string, seq int64) {
		for _, d := range ds {
			if d.CoversHeld(cluster, writer, seq) {
				ids[d.ID] = true
			}
		}
	})
}
