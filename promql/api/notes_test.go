package api

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestNotesOfDamage checks that an answer is returned without exemplars or metadata that can't be read, and that a
// header reports this, because the format of the answer has no warnings.
func TestNotesOfDamage(t *testing.T) {
	eng := memory.New()
	store := storagetest.Start(t, eng)
	b := store.NewBatch("default")
	at := time.Now().Add(-time.Minute).UnixMilli()
	s, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, "damaged"))
	require.NoError(t, err)
	require.NoError(t, b.Float(s, at, 0, 1))
	require.NoError(t, b.Exemplar(s, exemplar.Exemplar{Labels: labels.FromStrings("trace_id", "a"), Ts: at}))
	require.NoError(t, b.Commit(t.Context()))
	store.QueueMetadata("default", []byte("damaged"), "gauge", nil, []byte("what it tells"))
	require.NoError(t, store.SealAll(t.Context()))
	require.NoError(t, store.Close())

	const exemplars = 2 // the kind of their rows
	corrupted := 0
	for _, batch := range eng.All() {
		for i, m := range batch.Mutations {
			if batch.Table == engine.Metadata || batch.Table == engine.Raw && m.Clustering[0].Int == exemplars {
				batch.Mutations[i].Value, batch.Mutations[i].Timestamp = []byte{0xff}, m.Timestamp+1
				corrupted++
			}
		}
		if batch.Table == engine.Metadata || batch.Table == engine.Raw {
			require.NoError(t, eng.Write(t.Context(), []engine.Batch{batch}))
		}
	}
	require.Equal(t, 2, corrupted)
	again := storagetest.Open(t, eng)
	r := newRig(t, func(o *Options) {
		o.Exemplars = promql.NewExemplars(again)
		o.Metadata = func(ctx context.Context, tenant, metric string, limit int) (map[string][]MetricMetadata, error) {
			_, err := again.Metadata(ctx, tenant, metric, limit)
			return nil, err
		}
	})
	for path, want := range map[string]string{"/metadata": `{}`, "/query_exemplars?query=damaged": `[]`} {
		w := r.get(Prefix + path)
		require.JSONEq(t, want, data(t, w), path)
		require.Contains(t, w.Header().Get(noteHeader), "damaged", path)
	}
	require.Empty(t, r.get(Prefix+"/query_exemplars?query=m").Header().Get(noteHeader))
}
