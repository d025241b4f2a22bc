package importer

import (
	"context"
	"iter"
	"math"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
)

// Source is history to import. Its methods aren't called concurrently.
type Source interface {
	// Plan describes the source's content without reading all samples. If there is nothing to import, it returns an
	// error of one line with the reason.
	Plan(ctx context.Context) (Plan, error)
	// Batches yields the batches after a position; "" is the start. It may be called again, and yields the same batches
	// in the same order unless the source has changed. If the source has changed since the position was taken, Batches
	// must still yield every sample that an earlier run hasn't read. After the end, it yields the samples that the
	// source has received since. It stops after yielding an error.
	//
	// The caller owns the batch. A batch should hold whole days of many series rather than parts of slots, because each
	// import of a day writes the rollups of its series. Its size is at most BatchBytes.
	Batches(ctx context.Context, after string) iter.Seq2[Batch, error]
}

// BatchBytes is the approximate maximum size of a batch: SampleBytes per float plus the size of histograms.
const BatchBytes = 64 << 20

// SampleBytes is the size of a float in a batch: its timestamp and value.
const SampleBytes = 16

// BucketBytes is the approximate size in memory of a bucket of aggregates in a batch.
const BucketBytes = 200

// Plan is a summary of a source's content.
type Plan struct {
	// MinMS and MaxMS are the first and last timestamp in milliseconds, or bounds for them. MinMS > MaxMS means
	// unknown.
	MinMS, MaxMS int64
	// Samples and Series are the number of samples and series; 0 means unknown.
	Samples, Series int64
	// Words is a short description for people, such as "12 blocks".
	Words string
}

// Batch is a part of a source.
type Batch struct {
	// Series are the series of the batch. A series may occur more than once.
	Series []storage.ImportedSeries
	// Buckets are series with aggregates instead of samples. They are stored after Series, in order of resolution, from
	// the finest to the coarsest.
	Buckets []storage.ImportedBuckets
	// Position is where the next run resumes after this batch is stored.
	Position string
	// Restarted is true if the batches start from the beginning of the source, because the part before the requested
	// position has changed.
	Restarted bool
	// Done is the fraction of the source that was read including this batch, from 0 to 1.
	Done float64
	// Skipped lists the parts of the source that couldn't be imported.
	Skipped []Skip
}

// Skip is a part of a source that couldn't be imported.
type Skip struct {
	// What names the part: a series, a line, a file. Why is the reason.
	What, Why string
	// Samples is the number of skipped samples; 0 if unknown.
	Samples int
	// Damaged is true if the part exists but can't be read.
	Damaged bool
}

// Selection selects series and times of a source.
type Selection struct {
	// Matchers are lists of matchers. A series is selected if it matches all matchers of one list, or if there are no
	// lists.
	Matchers [][]*labels.Matcher
	// MinMS and MaxMS bound the timestamps, in milliseconds, both included.
	MinMS, MaxMS int64
	// Add are labels that are set on every series. They replace labels of the same name.
	Add []labels.Label
}

// Everything returns a selection of all series and times that adds no labels.
func Everything() Selection { return Selection{MinMS: math.MinInt64, MaxMS: math.MaxInt64} }

// Wants reports whether a series is selected. ls are its labels in the source, without Add.
func (s *Selection) Wants(ls labels.Labels) bool {
	if len(s.Matchers) == 0 {
		return true
	}
	for _, ms := range s.Matchers {
		if matchesAll(ms, ls) {
			return true
		}
	}
	return false
}

func matchesAll(ms []*labels.Matcher, ls labels.Labels) bool {
	for _, m := range ms {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// Labels returns the labels with which a series is stored.
func (s *Selection) Labels(ls labels.Labels) labels.Labels {
	if len(s.Add) == 0 {
		return ls
	}
	b := labels.NewBuilder(ls)
	for _, l := range s.Add {
		b.Set(l.Name, l.Value)
	}
	return b.Labels()
}
