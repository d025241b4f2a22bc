package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// livesRig is a pagesRig whose rows vanish by themselves, and whose pages can't be removed while failing is true.
type livesRig struct {
	*pagesRig

	failing bool
}

// vanishing is an engine whose rows vanish by themselves.
type vanishing struct{ engine.Engine }

func (vanishing) ExpiresRows() bool { return true }

func forEver(o *Options) { o.Retention = 0 }

func newLivesRig(t *testing.T) *livesRig {
	r := &livesRig{pagesRig: &pagesRig{t: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}}
	eng := memory.NewExpiring(func() time.Time { return r.now })
	r.eng = vanishing{faultengine.Wrap(eng, func(op faultengine.Op) faultengine.Action {
		if r.failing && op.Kind == faultengine.Write && op.Batch.Table == engine.RawPages {
			return faultengine.Fail(engine.ErrUnavailable)
		}
		return faultengine.Pass()
	})}
	t.Cleanup(func() { require.NoError(t, eng.Close()) })
	return r
}

// halfCleaned has a process that keeps raw samples so long seal ten series, delete one of them, and rewrite rows of it, but not pages.
func (r *livesRig) halfCleaned(keep time.Duration) {
	one := r.start("one", func(o *Options) { o.Retention = keep })
	r.seal(one, "up")
	require.Positive(r.t, r.pages(one, "up"))
	require.NoError(r.t, one.Delete(r.t.Context(), "ann", 0, r.now.UnixMilli(), labels.MustNewMatcher(labels.MatchEqual, "i", "3")))
	r.failing = true
	require.Error(r.t, one.CleanTombstones(r.t.Context(), "ann"))
	r.failing = false
	require.NoError(r.t, one.Close())
}

// What a process that keeps samples for ever writes anew of pages whose rows another one has rewritten is found by its marks and names when what that one wrote has
// vanished.
func TestPagesThatAreRewrittenLaterAreFound(t *testing.T) {
	r := newLivesRig(t)
	r.halfCleaned(48 * time.Hour)
	other := r.start("other", forEver)
	require.NoError(t, other.CleanTombstones(t.Context(), "ann"))
	require.Equal(t, 9, r.found(other, "up"))
	require.NoError(t, other.Close())
	r.now = r.now.Add(60 * day)
	again := r.start("again", forEver)
	require.Equal(t, 9, r.found(again, "up"))
}
