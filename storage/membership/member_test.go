package membership

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// crew is a set of members that use one engine and one clock.
type crew struct {
	t   *testing.T
	eng engine.Engine
	now time.Time
}

func newCrew(t *testing.T) *crew {
	return &crew{t: t, eng: memory.New(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
}

// join opens a member that advertises its name.
func (c *crew) join(name string, shared bool) *Member {
	nothing := func(context.Context) error { return nil }
	m := New(Options{
		Engine: c.eng, Writer: (name + "----------------")[:engine.IDLen], Self: Process{Name: name, Target: "all"},
		Shared: shared, Still: true, Now: func() time.Time { return c.now }, Created: c.now,
		LastKnown: func(context.Context) (int64, error) { return c.now.UnixMilli(), nil },
		State: func(leaving bool) ([]byte, error) {
			if leaving {
				return []byte("bye from " + name), nil
			}
			return []byte(name), nil
		},
		Learn: nothing, Refresh: nothing, Corrupt: func(_ *engine.Table, err error) { c.t.Error(err) },
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(c.t, m.Open(c.t.Context()))
	return m
}

func (c *crew) statements(m *Member) (all []string) {
	require.NoError(c.t, m.EachStatement(c.t.Context(), func(_ string, value []byte) {
		all = append(all, string(value))
	}))
	return all
}

func names(list []Process) (names []string) {
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names
}

// TestMembersHearOfEachOther checks which members are listed as alive after members join, stop sending heartbeats, and
// leave.
func TestMembersHearOfEachOther(t *testing.T) {
	c, ctx := newCrew(t), t.Context()
	a, b := c.join("a", true), c.join("b", true)
	all, err := a.Processes(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names(all))
	require.Equal(t, b.Writer(), all[1].Writer)
	writers, err := a.AppendWriters(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"b---------------"}, writers)
	require.Equal(t, []string{"b"}, c.statements(a))

	alive := NewLiveness(a, func() time.Time { return c.now })
	others := func() []Process {
		list, err := alive.Others(ctx)
		require.NoError(t, err)
		return list
	}
	require.Equal(t, []string{"b"}, names(others()))
	c.now = c.now.Add(LivenessTimeout - time.Second)
	require.Equal(t, []string{"b"}, names(others()))
	c.now = c.now.Add(time.Second)
	require.Empty(t, others())
	require.Equal(t, LivenessTimeout, b.HeartbeatAge())
	require.NoError(t, b.SendHeartbeat(ctx))
	require.Zero(t, b.HeartbeatAge())
	require.True(t, others()[0].Downsamples())
	require.NoError(t, b.Leave(ctx))
	require.False(t, others()[0].Downsamples())
	b.Close()
	require.Equal(t, []string{"bye from b"}, c.statements(a))
	a.Close()
}

// TestMayAcknowledge checks that a member of a shared store acknowledges only while the others read its writes.
func TestMayAcknowledge(t *testing.T) {
	c, ctx := newCrew(t), t.Context()
	one, several := c.join("one", false), c.join("several", true)
	begun := c.now
	both := func() []error { return []error{one.MayAcknowledge(begun), several.MayAcknowledge(begun)} }
	require.Equal(t, []error{nil, nil}, both())
	c.now = c.now.Add(CommitTimeout + time.Second)
	errs := both()
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], engine.ErrUnavailable)
	begun = c.now
	require.NoError(t, several.MayAcknowledge(begun))
	c.now = c.now.Add(maxSilence)
	begun = c.now
	errs = both()
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], engine.ErrUnavailable)
	require.NoError(t, several.SendHeartbeat(ctx))
	require.NoError(t, several.MayAcknowledge(begun))
	require.Zero(t, one.HeartbeatAge())
	require.NoError(t, one.SendHeartbeat(ctx))
	one.Close()
	several.Close()
	all, err := one.Processes(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"several"}, names(all), "the only process of a store has no row")
}

// TestLeaseIsTakenOnce checks that only one of two members acquires a lease that both have read as free.
func TestLeaseIsTakenOnce(t *testing.T) {
	c, ctx := newCrew(t), t.Context()
	a, b := c.join("a", true), c.join("b", true)
	free, err := a.Leases(ctx, 3)
	require.NoError(t, err)
	require.Len(t, free, 3)
	taken, ok, err := a.SetLeaseOwner(ctx, 1, free[1], a.Writer())
	require.NoError(t, err)
	require.True(t, ok)
	_, ok, err = b.SetLeaseOwner(ctx, 1, free[1], b.Writer())
	require.NoError(t, err)
	require.False(t, ok)
	now, err := b.Leases(ctx, 3)
	require.NoError(t, err)
	require.Equal(t, []string{"", a.Writer(), ""}, []string{now[0].Owner, now[1].Owner, now[2].Owner})
	require.Equal(t, "a", now[1].Name)
	_, ok, err = a.SetLeaseOwner(ctx, 1, taken, "")
	require.NoError(t, err)
	require.True(t, ok)
	rules, err := b.RulesLease(ctx)
	require.NoError(t, err)
	_, ok, err = b.SetRulesLeaseOwner(ctx, rules, b.Writer())
	require.NoError(t, err)
	require.True(t, ok)
	a.Close()
	b.Close()
}
