package main

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
)

// oldSamples decides whether samples that are older than the retention of raw samples may be imported. Most of them are
// stored only as rollups, which the user must have accepted.
//
//	plan of the source ──► admitPlan, before anything is stored
//	each batch ──────────► checkBatch, before the batch is stored: most plans don't contain the times of the samples
type oldSamples struct {
	kept importer.RetentionPolicy
	// isAccepted is set if the flag --retention.raw was set.
	isAccepted bool
	// remedy describes what the user can do instead of accepting rollups only.
	remedy string
	// Each of these sets contains the classes for which a note was printed: printed for the note about old samples,
	// hours for the note about samples that are stored only as 1h rollups, and expired for the note about skipped
	// samples.
	printed, hours, expired map[string]bool
	now                     func() time.Time
}

// oldSamplesError means that the source has old samples and the user hasn't accepted storing them only as rollups.
type oldSamplesError string

func (e oldSamplesError) Error() string { return string(e) }

// admitPlan returns an error if, according to the plan, the source has old samples, unless the user has accepted
// rollups only.
func (o *oldSamples) admitPlan(plan importer.Plan) error {
	keep, now := o.kept.Default, o.now()
	if len(o.kept.Classes) > 0 || keep.Raw == 0 || plan.MinMS > plan.MaxMS ||
		plan.MinMS >= now.Add(-keep.Raw).UnixMilli() {
		return nil // With classes, the retention depends on the series of each batch.
	}
	return o.checkPast(now, &importer.PastSamples{Durations: keep}, func(note string) { fmt.Fprintln(stdout, note) })
}

// checkBatch returns an error if a batch has old samples, unless the user has accepted rollups only. In that case it
// prints a note, once per class.
func (o *oldSamples) checkBatch(list []storage.ImportedSeries, say func(note string)) error {
	now := o.now()
	for _, p := range o.kept.CountPast(list, now) {
		if err := o.checkPast(now, &p, say); err != nil {
			return err
		}
	}
	return nil
}

func (o *oldSamples) checkPast(now time.Time, p *importer.PastSamples, say func(note string)) error {
	note := fmt.Sprintf(
		"samples before %s are past %s; of days (UTC) that ended more than 7 days earlier, only rollups are stored, "+
			"unless the store still has older raw samples",
		shortInstant(now.Add(-p.Raw).UnixMilli()), pastWhat(p),
	)
	if !o.isAccepted {
		return oldSamplesError(note + "; to accept this, set --retention.raw explicitly, " + o.remedy)
	}
	if !o.printed[p.Class] {
		o.printed[p.Class] = true
		say(note)
	}
	if p.HoursOnly > 0 && !o.hours[p.Class] {
		o.hours[p.Class] = true
		say(fmt.Sprintf(
			"only 1h rollups are stored of samples whose week, of 5m rollups, ended more than 7 days before the retention%s, %s",
			ofClass(p.Class), model.Duration(p.FiveMinutes),
		))
	}
	if p.Expired > 0 && !o.expired[p.Class] {
		o.expired[p.Class] = true
		say(fmt.Sprintf(
			"samples are skipped if their 30 days, of 1h rollups, ended more than 7 days before the retention%s, %s",
			ofClass(p.Class), model.Duration(p.OneHour),
		))
	}
	return nil
}

// pastWhat describes the retention of raw samples that applies. It may be set by the flag, or for a class.
func pastWhat(p *importer.PastSamples) string {
	return fmt.Sprintf("the retention of raw samples%s, %s", ofClass(p.Class), model.Duration(p.Raw))
}

func ofClass(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" of class %q", name)
}
