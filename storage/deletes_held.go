package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// heldCut says that a delete is about what a writer holds of a cluster's replicas up to a number: those rows were there
// when it was asked for. What it holds with greater ones came later.
type heldCut struct {
	cluster, writer string
	seq             int64
}

// maxCutBytes bounds what a delete says of held rows.
const maxCutBytes = 256 << 10

// cuts says whether a held row was there when the delete was asked for.
func (d *deletion) cuts(cluster, writer string, seq int64) bool {
	return slices.ContainsFunc(d.held, func(c heldCut) bool { return c.cluster == cluster && c.writer == writer && seq <= c.seq })
}

func appendCuts(dst []byte, cuts []heldCut) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(cuts)))
	for _, c := range cuts {
		dst = append(appendString(dst, c.cluster), c.writer...)
		dst = binary.AppendUvarint(dst, uint64(c.seq))
	}
	return dst
}

func parseCuts(b []byte) (cuts []heldCut, rest []byte, err error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: truncated", errBadDeletion)
	}
	b = b[n:]
	for range count {
		cluster, rest, err := takeString(b)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errBadDeletion, err)
		}
		if len(rest) < engine.IDLen {
			return nil, nil, fmt.Errorf("%w: truncated", errBadDeletion)
		}
		seq, n := binary.Uvarint(rest[engine.IDLen:])
		if n <= 0 || seq > maxTime {
			return nil, nil, fmt.Errorf("%w: no number of a held row", errBadDeletion)
		}
		cuts = append(cuts, heldCut{string(cluster), string(rest[:engine.IDLen]), int64(seq)})
		b = rest[engine.IDLen+n:]
	}
	return cuts, b, nil
}

// eachChoice calls f for the clusters of a tenant, until it returns an error.
func (s *Store) eachChoice(ctx context.Context, tenant string, f func(cluster string, ch *choice) error) error {
	key := engine.Key{engine.Text(tenant)}
	for bucket := range int64(choiceBuckets) {
		for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Chosen, Partition: engine.Key{engine.Int(bucket)}, From: key, To: key}) {
			if err != nil {
				return fmt.Errorf("storage: reading the choices of replicas: %w", err)
			}
			cluster := strings.Clone(row.Clustering[1].Text)
			ch, err := parseChoice(row.Value)
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
	return s.eachChoice(ctx, tenant, func(cluster string, ch *choice) error {
		for era := ch.Low; era <= ch.era(); era++ {
			for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Held, Partition: heldPartition(clusterName{tenant, cluster}, era), KeysOnly: true}) {
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
func (s *Store) heldCuts(ctx context.Context, tenant string) (cuts []heldCut, err error) {
	err = s.eachHeld(ctx, tenant, func(cluster, writer string, seq int64) {
		i := slices.IndexFunc(cuts, func(c heldCut) bool { return c.cluster == cluster && c.writer == writer })
		if i < 0 {
			cuts = append(cuts, heldCut{cluster, strings.Clone(writer), seq})
			return
		}
		cuts[i].seq = max(cuts[i].seq, seq)
	})
	return cuts, err
}

// withHeld returns the ids of the deletes that are about rows that are held still.
func (s *Store) withHeld(ctx context.Context, tenant string, ds deletions) (map[string]bool, error) {
	ids := map[string]bool{}
	if ds = ds.where(func(d *deletion) bool { return len(d.held) > 0 }); len(ds) == 0 {
		return ids, nil
	}
	return ids, s.eachHeld(ctx, tenant, func(cluster, writer string, seq int64) {
		for _, d := range ds {
			if d.cuts(cluster, writer, seq) {
				ids[d.id] = true
			}
		}
	})
}
