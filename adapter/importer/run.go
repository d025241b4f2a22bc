package importer

import (
	"context"
	"errors"
	"fmt"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/query"
)

// Options configure an import. Into, Tenant and Source must be set.
type Options struct {
	Into   Destination
	Tenant string
	// Source is the history to import. Name identifies it, including all settings that change its batches. Target
	// identifies the location of the store. A checkpoint is valid for one Name, Target and Tenant.
	Source       Source
	Name, Target string
	// Within is the range of time that Source selects, both ends included. The zero value selects all.
	Within query.Span
	// Checkpoint is the file that stores the progress of the import. If it is empty, each run starts from the
	// beginning.
	Checkpoint string
	// Admit, if not nil, is called with the series of each batch before they are stored, and must not change them. If
	// it returns an error, Run doesn't store the batch and returns the error. The next run starts with this batch.
	Admit func([]storage.ImportedSeries) error
	// Progress, if not nil, is called after each batch.
	Progress func(Progress)
}

// Progress is the progress of an import.
type Progress struct {
	// Done is the imported fraction of the source, from 0 to 1. Before is its value at the start of this run.
	Done, Before float64
	// Stats are the totals of this run.
	Stats storage.ImportStats
	// Skipped lists the parts of the last batch that couldn't be imported.
	Skipped []Skip
}

// Report is the result of a run.
type Report struct {
	// Resumed is true if the run continued an earlier one. Complete is true if an earlier run was complete and the
	// source has no new data. OtherStore is true if earlier runs imported into another store, or into this store before
	// it was restored from a backup; the run then started from the beginning. Changed is true if the part of the source
	// that earlier runs read has changed; the run then read the source from its start.
	Resumed, Complete, OtherStore, Changed bool
	// Stats are the totals of this run, All the totals of all runs.
	Stats, All storage.ImportStats
	// Skipped is the number of samples that couldn't be imported, and Damaged the number of parts of the source that
	// couldn't be read, in all runs.
	Skipped, Damaged int
}

// Run imports a source, starting where the last run stopped. If it fails, finished batches remain stored, and the next
// run resumes after them.
func Run(ctx context.Context, o Options) (r Report, err error) {
	identity, err := o.Into.Identity(ctx, o.Tenant)
	if err != nil {
		return r, err
	}
	begin := Checkpoint{Version: checkpointVersion, Source: o.Name, Target: o.Target, Tenant: o.Tenant, Store: identity}
	var at Checkpoint
	if at, r.OtherStore, err = readCheckpoint(o.Checkpoint, begin); err != nil {
		return r, err
	}
	r.Resumed, r.Complete = at.Position != "" || at.Complete, at.Complete
	r.All, r.Skipped, r.Damaged = at.Stats, at.Skipped, at.Damaged
	before := at.Done
	if at.Complete {
		before = 0 // The Done of a complete run doesn't include data added since.
	}
	for b, err := range prefetch(ctx, o.Source, at.Position) {
		if err != nil {
			return r, err
		}
		if b.Restarted {
			at, before = begin, 0
			r.Changed, r.Resumed = true, false
		}
		if len(b.Series)+len(b.Buckets)+len(b.Skipped) > 0 || b.Restarted {
			r.Complete = false
		}
		if o.Admit != nil {
			if err := o.Admit(b.Series); err != nil {
				return r, err
			}
		}
		at.updateNewest(b.Series)
		var stats storage.ImportStats
		if len(b.Series) > 0 {
			if stats, err = o.Into.Import(ctx, o.Tenant, b.Series); err != nil {
				return r, err
			}
		}
		if len(b.Buckets) > 0 {
			rolled, err := o.Into.ImportBuckets(ctx, o.Tenant, b.Buckets)
			if err != nil {
				return r, err
			}
			stats.Add(rolled)
		}
		r.Stats.Add(stats)
		at.Stats.Add(stats)
		for _, s := range b.Skipped {
			at.Skipped += s.Samples
			if s.Damaged {
				at.Damaged++
			}
		}
		at.Position, at.Done, at.Complete = b.Position, b.Done, false
		if err := at.write(o.Checkpoint); err != nil {
			return r, err
		}
		r.All, r.Skipped, r.Damaged = at.Stats, at.Skipped, at.Damaged
		if o.Progress != nil {
			o.Progress(Progress{Done: b.Done, Before: before, Stats: r.Stats, Skipped: b.Skipped})
		}
	}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	at.Complete, at.Done = true, 1
	return r, at.write(o.Checkpoint)
}

// prefetch yields the batches of a source. While the caller handles a batch, prefetch reads the next one.
func prefetch(ctx context.Context, s Source, after string) func(yield func(Batch, error) bool) {
	type item struct {
		b   Batch
		err error
	}
	return func(yield func(Batch, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		items := make(chan item)
		defer func() {
			cancel()
			for range items { // Wait until the source has returned.
			}
		}()
		go func() {
			defer close(items)
			for b, err := range s.Batches(ctx, after) {
				select {
				case items <- item{b, err}:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
		for i := range items {
			if i.err != nil && errors.Is(i.err, context.Canceled) && ctx.Err() != nil {
				i.err = ctx.Err()
			}
			if !yield(i.b, i.err) || i.err != nil {
				return
			}
		}
	}
}

// Describe returns a one-line description of a plan.
func (p Plan) Describe() string {
	text := p.Words
	if p.MinMS <= p.MaxMS {
		text += fmt.Sprintf(", %s – %s", formatInstant(p.MinMS), formatInstant(p.MaxMS))
	}
	if p.Series > 0 {
		text += fmt.Sprintf(", %d series", p.Series)
	}
	if p.Samples > 0 {
		text += ", " + countSamples(p.Samples)
	}
	return text
}
