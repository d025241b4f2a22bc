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
	// retryRebuild is how long a rebuild that met an engine which was away waits to try again, at first;
	// maxRetryRebuild at most.
	retryRebuild    = time.Second
	maxRetryRebuild = 15 * time.Second
)

// rebuild loads the stage into the head. Commits go on meanwhile, in generations of their own.
func (s *Store) rebuild(ctx context.Context) error {
	if err := s.recallHorizons(ctx); err != nil && ctx.Err() == nil { // Whoever needs them reads them.
		s.opts.Logger.Warn("can't read the deletes and retentions of all tenants yet", "err", err)
	}
	if s.follower.mode == followsNothing {
		return nil // Others answer queries.
	}
	begin := time.Now()
	s.follower.begin(s.opts.Now())
	if err := s.peers.load(ctx); err != nil {
		return err
	}
	err := s.rebuildAll(ctx)
	for wait := retryRebuild; s.opts.Shared && !s.opts.seams.still && errors.Is(err, engine.ErrUnavailable) && ctx.Err() == nil; wait = min(2*wait, maxRetryRebuild) {
		s.opts.Logger.Warn("rebuilding the head from the staging log failed and is retried; queries wait", "in", wait, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			err = s.rebuildAll(ctx) // Rows that were read stay in the head.
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Logger.Error("rebuilding the head from the staging log failed; queries can't be answered", "err", err)
		}
		return fmt.Errorf("storage: rebuilding the head: %w", err)
	}
	s.metrics.rebuildSeconds.Set(time.Since(begin).Seconds())
	s.opts.Logger.Info("rebuilt the head from the staging log", "series", s.head.SeriesCount(), "bytes", s.head.Bytes(), "took", time.Since(begin).Round(time.Millisecond))
	s.follower.start(ctx)
	return nil
}

// rebuildAll reads the stage of every partition, once: it may be larger than all that the cache holds.
func (s *Store) rebuildAll(ctx context.Context) error {
	if s.caching != nil {
		defer s.caching.ReadOnce()()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opts.seams.workers(s.distance().rebuildWorkers))
	for p := range s.period.Partitions() {
		g.Go(panics.AsError("rebuilding the head", func() error { return s.rebuildPartition(ctx, p) }))
	}
	return g.Wait()
}

// rebuildPartition reads every slot that may wait, of all writers. What this process writes meanwhile is in
// the head already.
func (s *Store) rebuildPartition(ctx context.Context, partition int) error {
	work, err := s.Waiting(ctx, partition)
	if err != nil {
		return err
	}
	if work, err = occupied(ctx, s, engine.Stage, work, Work.stagePartition); err != nil {
		return err
	}
	for _, w := range work {
		if err := s.follower.whole(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// corrupt counts and logs what had to be skipped.
func (s *Store) corrupt(t *engine.Table, err error) {
	s.metrics.corrupt.WithLabelValues(t.Name).Inc()
	s.opts.Logger.Error("skipped a corrupt row; run cassia check", "table", t.Name, "err", err)
}

// errNotRebuilt keeps sealing from running before the head is complete.
var errNotRebuilt = errors.New("storage: sealing waits until the head is rebuilt")
