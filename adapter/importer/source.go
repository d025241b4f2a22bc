package importer

import (
	"context"
	"iter"
	"math"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
)

// Source is history to import. Its methods are called one after the other.
type Source interface {
	// Plan describes the source's content, without reading all samples. Its error is one line, with the reason why there is
	// nothing to import.
	Plan(ctx context.Context) (Plan, error)
	// Batches yields the batches after a position, "" from the start. It may be called again. The batches are the same,
	// and in the same order, each time, as long as the source stays the same. A position that came from another state of the source
	// must not lead to samples being left out: after the last position it yields samples that the source has received since. An error ends the batches.
	//
	// A batch is the caller's. It should hold whole days of many series rather than parts of slots, and at most
	// BatchBytes: each import of a day writes the rollups of its series.
	Batches(ctx context.Context, after string) iter.Seq2[Batch, error]
}

// BatchBytes is about how much a batch holds at most, by SampleBytes and what histograms take.
const BatchBytes = 64 << 20

// SampleBytes is what a float takes in a batch: its timestamp and value.
const SampleBytes = 16

// Plan is what a source has to offer.
type Plan struct {
	// MinMS and MaxMS are the first and last timestamp, milliseconds, or bounds of them. MinMS > MaxMS: unknown.
	MinMS, MaxMS int64
	// Samples and Series are how many there are; 0: unknown.
	Samples, Series int64
	// Words are a line for people, such as "12 blocks".
	Words string
}

// Batch is a part of a source.
type Batch struct {
	// Series may be many; a series may stand there several times.
	Series []storage.ImportedSeries
	// Buckets are aggregates that the source has in place of samples. They are stored after Series, the finer ones first.
	Buckets []storage.ImportedBuckets
	// Position is where the next run begins once the batch is stored.
	Position string
	// Restarted: the batches begin at the start of the source, because the part of it before the position from which they should go on has changed.
	Restarted bool
	// Done is how much of the source was read with this batch, from 0 to 1.
	Done float64
	// Skipped is what could not be taken.
	Skipped []Skip
}

// Skip is something of a source that could not be taken.
type Skip struct {
	// What names it: a series, a line, a file. Why is the reason.
	What, Why string
	// Samples is how many were left out, if that is known.
	Samples int
	// Damaged: the source should have them, but they can't be read.
	Damaged bool
}

// Selection selects series and times of a source.
type Selection struct {
	// Matchers choose series: those that pass all of one of the lists. None: all series.
	Matchers [][]*labels.Matcher
	// MinMS and MaxMS bound the timestamps, milliseconds, both included.
	MinMS, MaxMS int64
	// Add are labels that every series gets, in place of one with that name.
	Add []labels.Label
}

// Everything is the selection that leaves nothing out and adds nothing.
func Everything() Selection { return Selection{MinMS: math.MinInt64, MaxMS: math.MaxInt64} }

// Wants reports whether a series, as the source has it, was chosen.
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

// Labels returns a series' labels as they are stored.
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
