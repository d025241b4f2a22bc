package storage

import (
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// keepUnread5m adds the stored 5m buckets to made if some of the chunks from which made was computed are unreadable. It
// omits buckets whose samples are all readable, and buckets that a delete touches if made still has samples of them. It
// sets a version higher than the stored one.
func (x *roller) keepUnread5m(in *rolledSlot, r *rollupTask, shards int64, made *rollup.Buckets) error {
	if !r.unread {
		return nil
	}
	kept, version, err := x.readStored(in.fineRollup(), r)
	if err != nil || version == 0 {
		return err
	}
	r.version = max(r.version, version+1)
	width := rollup.FiveMinutes.Width()
	due := in.due.OfSeries(r.series.Labels())
	format.TrimBuckets(kept, func(int64) format.Tombstones { return due })
	there, err := in.bucketsBefore(r, shards, due)
	if err != nil {
		return err
	}
	better := map[int64]bool{} // the ends of stored buckets that aren't added
	for k, end := range kept.End {
		if i, ok := slices.BinarySearch(there.End, end); ok {
			_, left := slices.BinarySearch(made.End, end)
			better[end] = there.Count[i] >= kept.Count[k] || left && due.TouchesBucket(end, width)
		}
	}
	kept.Delete(0, func(end int64) bool { return better[end] })
	var all rollup.Buckets
	rollup.Merge(&all, kept, made, rollup.AllColumns)
	*made = all
	return nil
}

// bucketsBefore returns the 5m buckets of a series' readable samples, without applying the deletes in due, and without
// the chunks that this seal has written. If such a bucket counts at least as many samples as the stored bucket, all
// samples of the stored bucket are readable.
func (x *rolledSlot) bucketsBefore(r *rollupTask, shards int64, due format.Tombstones) (*rollup.Buckets, error) {
	known := x.hiding.OfSeries(r.series.Labels()).Filter(func(d *format.Tombstone) bool { return !due.Has(d.ID) })
	found := sealedChunks{}
	if err := x.readMetricChunks(x.ctx, []*Series{r.series}, shards, found); err != nil {
		return nil, err
	}
	chunks := slices.DeleteFunc(
		found[chunkKey{x.into[rollup.Raw].start, r.series.ID()}].values, func(value []byte) bool {
			return slices.Contains(r.own, format.RowVersion(value))
		},
	)
	var samples chunk.Samples
	if _, err := visibleSamples(chunks, known, &samples, func(format.TombstoneIDs) {}); err != nil {
		return nil, err
	}
	samples.Normalize()
	var there rollup.Buckets
	rollup.AppendEvery(&there, &samples, rollup.FiveMinutes.Width())
	return &there, nil
}

// keepUnread1h adds the stored 1h buckets of slots for which no 5m chunk was read to made, if 5m rows may be missing or
// unreadable. It applies the due deletes to these buckets, and sets r.chunk to the result.
func (x *roller) keepUnread1h(r *rollupTask, fine []rollupChunk, made *rollup.Buckets) error {
	if !r.unread && !x.mayBeMissing(rollup.FiveMinutes, r.class) {
		return nil
	}
	kept, version, err := x.readStored(x.hourRollup(), r)
	if err != nil || version == 0 {
		return err
	}
	p := x.s.period
	there := map[int64]bool{}
	for _, c := range fine {
		there[p.SlotOf(c.start+1)] = true
	}
	kept.Delete(0, func(end int64) bool { return there[p.SlotOf(end)] })
	x.trimDue(x.hourRollup().dueDeletes(r.series), kept)
	var all rollup.Buckets
	rollup.Merge(&all, kept, made, rollup.AllColumns)
	r.version = max(r.version, version+1)
	r.chunk = appendOrEmpty(&all, rollup.OneHour, r.version)
	return nil
}
