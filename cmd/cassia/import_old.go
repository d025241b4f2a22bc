package main

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
)

// oldSamples decides on samples past the retention of raw samples: of most of them only rollups are stored, so the user must have accepted that.
//
//	plan of the source ──► admitPlan, before anything is stored
//	each batch ──────────► admit, before the batch is stored: most plans don't have the times of the samples
type oldSamples struct {
	kept importer.Kept
	// accepted: --retention.raw was set.
	accepted bool
	// remedy names another way, other than accepting that.
	remedy string
	// printed: the note about old samples was printed.
	printed bool
	now     func() time.Time
}

// oldSamplesError means that the source has old samples and the user hasn't accepted that.
type oldSamplesError string

func (e oldSamplesError) Error() string { return string(e) }

// admitPlan returns an error if the source may have old samples.
func (o *oldSamples) admitPlan(plan importer.Plan) error {
	raw, now := o.kept.Default.Raw, o.now()
	if raw == 0 || plan.MinMS > plan.MaxMS || plan.MinMS >= now.Add(-raw).UnixMilli() {
		return nil
	}
	return o.decide(now, raw, "", func(note string) { fmt.Fprintln(stdout, note) })
}

// admit returns an error if a batch has old samples. If they were accepted, it prints so once.
func (o *oldSamples) admit(list []storage.ImportedSeries, say func(note string)) error {
	if o.printed {
		return nil
	}
	now := o.now()
	raw, class, ok := o.kept.PastRaw(list, now)
	if !ok {
		return nil
	}
	return o.decide(now, raw, class, say)
}

func (o *oldSamples) decide(now time.Time, raw time.Duration, class string, say func(note string)) error {
	past := "--retention.raw=" + model.Duration(raw).String()
	if class != "" {
		past = fmt.Sprintf("the retention of class %q, %s", class, model.Duration(raw))
	}
	note := fmt.Sprintf("samples before %s are past %s; those more than 7 days past it are stored as rollups only", shortInstant(now.Add(-raw).UnixMilli()), past)
	if !o.accepted {
		if class != "" {
			return oldSamplesError(note + "; to accept this, set --retention.raw explicitly, " + o.remedy)
		}
		return oldSamplesError(note + "; to accept this, set that flag explicitly, " + o.remedy)
	}
	say(note)
	o.printed = true
	return nil
}
