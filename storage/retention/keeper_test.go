package retention

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/rollup"
)

const day = 24 * time.Hour

// keeperRig creates Keepers on one engine, for a store without rows.
type keeperRig struct {
	t   *testing.T
	eng engine.Engine
	now time.Time
	env Env
}

func newKeeperRig(t *testing.T) *keeperRig {
	r := &keeperRig{t: t, eng: memory.New(), now: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return r.now }
	member := membership.New(membership.Options{
		Engine: r.eng, Writer: "writer of 16 B..", Now: now, Created: r.now, Logger: slog.New(slog.DiscardHandler),
		Still: true, Believing: true,
		LastKnown: func(context.Context) (int64, error) { return r.now.UnixMilli(), nil },
		State:     func(bool) ([]byte, error) { return nil, nil }, Learn: func(context.Context) error { return nil },
		Refresh: func(context.Context) error { return nil }, Corrupt: func(*engine.Table, error) {},
	})
	r.env = Env{
		Engine: r.eng, Period: periodsOfNewStore, Clock: member.Clock, Now: now, Logger: slog.New(slog.DiscardHandler),
		Samples: func(context.Context, string, int64, []int64) (int64, error) { return -1, nil },
		Windows: func(_ context.Context, _ string, first, _ int64) ([]int64, error) { return []int64{first}, nil },
		Written: func(string, int64) bool { return false },
	}
	return r
}

// keeping returns a Keeper with the given retention of raw rows.
func (r *keeperRig) keeping(raw time.Duration) *Keeper {
	r.env.Configured.All.Raw = raw
	return New(r.env, ClassHistory{})
}

// rollsAll is a Roller that has nothing to compute.
type rollsAll struct{}

func (rollsAll) RollHidden(_ context.Context, _ string, _ *Boundary, target int64) (int64, error) {
	return target, nil
}
func (rollsAll) RollUntil(_ context.Context, _ string, _, to int64) (int64, error) { return to, nil }

// writerFunc implements io.Writer.
type writerFunc func(line []byte) (int, error)

func (f writerFunc) Write(line []byte) (int, error) { return f(line) }

// TestBoundariesForgottenAsTheyChange checks that Tenant returns the boundaries that it has changed, even if another
// caller in the same process concurrently fails to change the boundaries and therefore clears the cached copy.
func TestBoundariesForgottenAsTheyChange(t *testing.T) {
	r := newKeeperRig(t)
	_, err := r.keeping(30*day).Advance(rollsAll{}).Tenant(t.Context(), "t")
	require.NoError(t, err)
	var k *Keeper
	var log bytes.Buffer
	r.env.Logger = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
		k.boundaries.Delete("t")
		return log.Write(line)
	}), nil))
	k = r.keeping(2 * day)
	b, err := k.Advance(rollsAll{}).Tenant(t.Context(), "t")
	require.NoError(t, err)
	require.Contains(t, log.String(), "a shorter retention hides samples")
	require.Equal(t, (2 * day).Milliseconds(), b.Boundary(DefaultClass, rollup.Raw).KeptMS)
}

// losing is an engine that loses the response to the next insert of an expiry.
type losing struct {
	engine.Engine
	lost int
}

// CompareAndSet implements engine.Engine.
func (e *losing) CompareAndSet(
	ctx context.Context, t *engine.Table, partition, clustering engine.Key, old, value []byte,
) (bool, []byte, error) {
	ok, found, err := e.Engine.CompareAndSet(ctx, t, partition, clustering, old, value)
	if partition[0] == expiryPartition("t")[0] && e.lost > 0 {
		e.lost--
		return false, nil, engine.ErrUnavailable
	}
	return ok, found, err
}

// TestExpiryInDoubt checks that an expiry is read back if the response to its insert is lost, and that it stays
// unchanged when the retention is raised.
func TestExpiryInDoubt(t *testing.T) {
	t.Parallel()
	r := newKeeperRig(t)
	at := expiryAt{"t", DefaultClass, r.env.Period.RawWindowAt(r.now.UnixMilli())}
	eng := &losing{r.eng, 1}
	r.env.Engine, r.env.Expires = eng, true
	row, err := r.keeping(10*day).fixExpiry(t.Context(), at)
	require.NoError(t, err)
	require.Zero(t, eng.lost)
	require.Equal(t, r.env.Period.WindowEnd(at.window)/1000+int64((10*day+Grace).Seconds()), row.Expires)
	again, err := r.keeping(90*day).fixExpiry(t.Context(), at)
	require.NoError(t, err)
	require.Equal(t, row, again)
	_, _, err = parseExpiry("t", engine.Row{Clustering: engine.Key{engine.Text("0/1")}})
	require.ErrorIs(t, err, engine.ErrCorrupt)
}
