package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
)

const (
	// retryRebuild is the delay before the first retry of a rebuild while the engine is unavailable. maxRetryRebuild is
	// the maximum delay.
	retryRebuild    = time.Second
	maxRetryRebuild = 15 * time.Second
)

// rebuild loads the staging log into the head, and then starts the follower. Concurrent commits write to separate
// generations.
func (s *Store) rebuild(ctx context.Context) error {
	if err := s.retention.LoadBoundaries(ctx); err != nil && ctx.Err() == nil { // Later reads try again.
		s.opts.Logger.Warn("can't read the deletes and retentions of all tenants yet", "err", err)
	}
	if s.follower.mode == followsNothing {
		return nil // Other processes answer queries.
	}
	begin := time.Now()
	s.follower.recordPass(s.opts.Now())
	err := s.rebuildAll(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Logger.Error(
				"rebuilding the head from the staging log failed; queries can't be answered", "err", err,
			)
		}
		return fmt.Errorf("storage: rebuilding the head: %w", err)
	}
	s.metrics.rebuildSeconds.Set(time.Since(begin).Seconds())
	s.opts.Logger.Info(
		"rebuilt the head from the staging log", "series", s.head.SeriesCount(), "bytes", s.head.Bytes(), "took",
		time.Since(begin).Round(time.Millisecond),
	)
	s.follower.start(ctx)
	return nil
}

// rebuildAll reads the staging log of every partition. It bypasses the engine's cache, because the staging log may be
// larger than the cache and would displace other rows.
func (s *Store) rebuildAll(ctx context.Context) error {
	if s.caching != nil {
		defer s.caching.ReadOnce()()
	}
	if err := s.retryUntilAvailable(ctx, s.peers.load); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opts.seams.workers(s.workSizes().rebuildWorkers))
	for p := range s.period.Partitions() {
		g.Go(panics.WrapError("rebuilding the head", func() error {
			return s.rebuildPartition(ctx, p, s.retryUntilAvailable)
		}))
	}
	return g.Wait()
}

// readOnce calls read once. It is passed as the try argument of rebuildPartition to disable retries.
func readOnce(ctx context.Context, read func(context.Context) error) error { return read(ctx) }

// rebuildPartition reads every slot of a partition that may have unsealed samples, from all writers. The head already
// contains the samples that this process has accepted since it started. rebuildPartition calls try for each slot, so
// that a retry only reads slots that aren't in the head yet.
func (s *Store) rebuildPartition(
	ctx context.Context, partition int, try func(context.Context, func(context.Context) error) error,
) error {
	var work []Work
	err := try(ctx, func(ctx context.Context) (err error) {
		if work, err = s.WaitingWork(ctx, partition); err == nil {
			work, err = listOccupied(ctx, s, engine.Stage, work, Work.stagePartition)
		}
		return err
	})
	for i := 0; err == nil && i < len(work); i++ {
		err = try(ctx, func(ctx context.Context) error { return s.follower.readSlot(ctx, work[i]) })
	}
	return err
}

// retryUntilAvailable calls read, which performs a part of the rebuild. If the engine is unavailable and this process
// is configured to wait, it retries until the engine is available.
func (s *Store) retryUntilAvailable(ctx context.Context, read func(context.Context) error) error {
	waits := (s.opts.Shared || s.opts.RetryRebuild) && !s.opts.seams.still
	for wait := retryRebuild; ; wait = min(2*wait, maxRetryRebuild) {
		err := read(ctx)
		if !waits || !errors.Is(err, engine.ErrUnavailable) || ctx.Err() != nil {
			s.rebuildWaits.Store(nil)
			return err
		}
		if before := s.rebuildWaits.Swap(&err); before == nil || (*before).Error() != err.Error() {
			s.opts.Logger.Warn(
				"rebuilding the head from the staging log failed and is retried; queries wait", "in", wait, "err", err,
			)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait): // Rows that were read stay in the head.
		}
	}
}

// errNotRebuilt is returned by a seal that starts before the head is complete.
var errNotRebuilt = errors.New("storage: sealing waits until the head is rebuilt")
