package importer

import (
	"context"
	"errors"
	"fmt"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/query"
)

// Options are those of an import. Into, Tenant and Source must be set.
type Options struct {
	Into   Destination
	Tenant string
	// Source is where history comes from. Name describes it, with all that changes its batches, and Target
	// where the store is: a checkpoint belongs to both, and to the tenant.
	Source       Source
	Name, Target string
	// Within is the range of time that Source was told to select, both ends included; the zero value: all.
	Within query.Span
	// Checkpoint is the file that remembers how far the import came; "": none, each run begins anew.
	Checkpoint string
	// Admit is called with the series of each batch before they are stored, and must not change them. Its error ends the import: the batch
	// isn't stored, and the next run starts with it. nil: all batches are stored.
	Admit func([]storage.ImportedSeries) error
	// Progress is called after each batch; nil: it isn't reported.
	Progress func(Progress)
}

// Progress is how far an import came.
type Progress struct {
	// Done is how much of the source is done, from 0 to 1; Before is what earlier runs had done of it.
	Done, Before float64
	// Stats are those of this run.
	Stats storage.ImportStats
	// Skipped is what could not be taken from the source with the last batch.
	Skipped []Skip
}

// Report is what an import did.
type Report struct {
	// Resumed: an earlier run had begun. Complete: an earlier run was complete, and the source has no more. Anew: the imports of earlier
	// runs went to another store, or to this one before it was restored: they were done again. Changed: the part of the source that earlier runs read
	// has changed, so it was read from its start.
	Resumed, Complete, Anew, Changed bool
	// Stats are those of this run, All those of all runs.
	Stats, All storage.ImportStats
	// Skipped samples could not be taken from the source, and Damaged parts of it could not be read, in all runs.
	Skipped, Damaged int
}

// Run imports what a source has, from where an earlier run ended. An error doesn't undo finished batches; run it again to go on.
func Run(ctx context.Context, o Options) (r Report, err error) {
	identity, err := o.Into.Identity(ctx, o.Tenant)
	if err != nil {
		return r, err
	}
	begin := Checkpoint{Version: checkpointVersion, Source: o.Name, Target: o.Target, Tenant: o.Tenant, Store: identity}
	var at Checkpoint
	if at, r.Anew, err = readCheckpoint(o.Checkpoint, begin); err != nil {
		return r, err
	}
	r.Resumed, r.Complete, r.All, r.Skipped, r.Damaged = at.Position != "" || at.Complete, at.Complete, at.Stats, at.Skipped, at.Damaged
	before := at.Done
	if at.Complete {
		before = 0 // Done is a part of the source as it is now.
	}
	for b, err := range ahead(ctx, o.Source, at.Position) {
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
		at.note(b.Series)
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

// ahead yields the batches of a source, and reads one more meanwhile.
func ahead(ctx context.Context, s Source, after string) func(yield func(Batch, error) bool) {
	type item struct {
		b   Batch
		err error
	}
	return func(yield func(Batch, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		items := make(chan item)
		defer func() {
			cancel()
			for range items { // Until the source has let go.
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

// Describe returns a line that describes a plan.
func (p Plan) Describe() string {
	text := p.Words
	if p.MinMS <= p.MaxMS {
		text += fmt.Sprintf(", %s – %s", instant(p.MinMS), instant(p.MaxMS))
	}
	if p.Series > 0 {
		text += fmt.Sprintf(", %d series", p.Series)
	}
	if p.Samples > 0 {
		text += ", " + countSamples(p.Samples)
	}
	return text
}
