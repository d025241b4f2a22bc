package storage

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// TestRebuildIsTriedAgain opens a store over a cluster that is away for its first reads: queries wait, and
// then are answered.
func TestRebuildIsTriedAgain(t *testing.T) {
	var away atomic.Int64
	away.Store(3)
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Pending && away.Add(-1) >= 0 {
			return faultengine.Fail(fmt.Errorf("%w: two nodes are down", engine.ErrUnavailable))
		}
		return faultengine.Pass()
	})
	o := DefaultOptions()
	o.Shared = true
	s := openReady(t, eng, o)
	defer func() { require.NoError(t, s.Close()) }()
	require.Negative(t, away.Load())
	_, err := s.Select(t.Context(), Query{Tenant: "default", MaxT: format.MaxTime})
	require.NoError(t, err)
}
