package storage

import (
	"context"
	"errors"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/starts"
)

// errNoQueries means that the store was opened without Follow, so it can't answer queries.
var errNoQueries = errors.New("storage: this process doesn't answer queries; send them to another process")

// newMember creates this process's membership. Other processes can't see it yet.
func (s *Store) newMember(have *settings) {
	o := &s.opts
	s.member = membership.New(membership.Options{
		Engine: s.eng, Writer: s.writer, Self: o.Self, Shared: o.Shared, ReadOnly: o.ReadOnly,
		Now: o.Now, Elapsed: o.Elapsed, Today: o.Today, AheadPatience: o.AheadPatience, Created: s.created,
		LastKnown: s.lastKnownTime,
		State:     func(leaving bool) ([]byte, error) { return s.retention.Advertise(leaving) },
		Learn:     func(ctx context.Context) error { return s.retention.LoadAdvertised(ctx) },
		Refresh:   s.refreshPeriods, Corrupt: s.damage.RecordCorruptRow, Logger: o.Logger,
		Still: o.seams.still, Believing: o.seams.trustsClocks,
	})
	s.clock, s.follower, s.peers = s.member.Clock, newFollower(s), s.newDeletePeers()
	s.retention = retention.New(s.retentionEnv(), have.ClassHistory)
	s.starts = starts.New(
		starts.Options{
			Engine: s.eng, Period: s.period, Now: o.Now, Corrupt: s.damage.RecordCorruptRow, Logger: o.Logger,
		},
	)
}

// Member returns this process's membership.
func (s *Store) Member() *membership.Member { return s.member }

// catchUp waits until all samples that other processes have acknowledged are visible.
func (s *Store) catchUp(ctx context.Context) error { return s.follower.catchUp(ctx) }

// lastKnownTime returns the latest time, in milliseconds, at which the store was certainly in use according to its
// rows.
func (s *Store) lastKnownTime(ctx context.Context) (int64, error) {
	last, now := s.created.UnixMilli(), s.opts.Now().UnixMilli()
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return 0, err
	}
	for _, tenant := range tenants {
		windows, err := s.windowsOf(ctx, tenant, format.FirstWindow(rollup.Raw), s.period.WindowAt(rollup.Raw, now))
		if err != nil {
			return 0, err
		}
		if n := len(windows); n > 0 {
			start, _ := s.period.WindowSpan(windows[n-1])
			last = max(last, start)
		}
	}
	return last, nil
}
