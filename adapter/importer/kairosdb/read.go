package kairosdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
)

// pieceSamples bounds the samples of a series that are read at once: 16 MiB.
const pieceSamples = 1 << 20

// stepsMS are the widths of the parts in which a slice is read: slice, day, slot, minute, second, millisecond. A part
// with more than pieceSamples samples is read again with the next smaller width.
var stepsMS = []int64{sliceMS, dayMS, 2 * 60 * 60 * 1000, 60 * 1000, 1000, 1}

// job is the part of one series in one slice that is still to be read.
type job struct {
	metric *metricPlan
	tags   map[string]string
	labels labels.Labels
	rows   []Row
	// fromMS and endMS are the first and last selected time.
	fromMS, endMS int64
	// step is the index in stepsMS of the current part width.
	step int
	// isResumed is true if the start of the slice was already read. The points of the slice that aren't numbers were
	// counted then.
	isResumed bool
	// damage lists the errors that occurred while rows were listed.
	damage []error
	// done is the fraction of the source that is complete after this job.
	done float64
}

// piece holds samples that were read for a job.
type piece struct {
	job     *job
	samples *chunk.Samples
	skips   skips
	// untilMS is the end of the completed part, and step the part width for the rest.
	untilMS int64
	step    int
	err     error
}

// pieces reads all slices from a position on, multiple series concurrently, and yields the pieces in order. When it
// returns, no read is in progress. An error is the last element.
func (s *Source) pieces(ctx context.Context, at *position) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		ctx, cancel := context.WithCancel(ctx)
		// Each series that is being read has a result channel. These channels wait in promises, in the order of the
		// series.
		promises := make(chan chan piece, s.o.Readers)
		defer func() {
			cancel()
			for p := range promises { // until no read is in progress
				<-p
			}
		}()
		go func() {
			defer close(promises)
			for j, err := range s.jobs(ctx, at) {
				promise := make(chan piece, 1)
				select {
				case promises <- promise:
				case <-ctx.Done():
					return
				}
				if err != nil {
					promise <- piece{err: err}
					return
				}
				go func() { promise <- s.read(ctx, j) }()
			}
		}()
		for promise := range promises {
			p := <-promise
			for {
				if !yield(p) || p.err != nil {
					return
				}
				if p.untilMS == p.job.endMS {
					break
				}
				p.job.fromMS, p.job.step, p.job.isResumed = p.untilMS+1, p.step, true
				p = s.read(ctx, p.job)
			}
		}
	}
}

// jobs lists the series of all slices from a position on.
func (s *Source) jobs(ctx context.Context, at *position) iter.Seq2[*job, error] {
	return func(yield func(*job, error) bool) {
		for i, end := range s.plan.slices {
			if at != nil && end < at.EndMS {
				continue
			}
			for n, m := range s.plan.metrics {
				resume := at != nil && end == at.EndMS
				if resume && m.name < at.Metric || !m.hasRows(end-sliceMS+1, end, s.o.WidthMS) {
					continue
				}
				list, err := s.seriesOf(ctx, m, end)
				if err != nil {
					yield(nil, err)
					return
				}
				for _, j := range list {
					if resume && m.name == at.Metric && !j.resumeAt(at) {
						continue
					}
					j.done = (float64(i) + float64(n+1)/float64(len(s.plan.metrics))) / float64(len(s.plan.slices))
					if !yield(j, nil) {
						return
					}
				}
			}
		}
	}
}

// resumeAt skips the part of the job that was completed before the position. It reports whether anything is left to
// read.
func (j *job) resumeAt(at *position) bool {
	c := compareTags(j.tags, at.Tags)
	if c == 0 && at.UntilMS != nil {
		j.fromMS, j.step, j.isResumed = max(j.fromMS, *at.UntilMS+1), at.Step, true
		return true
	}
	return c > 0
}

// seriesOf lists the selected series of a metric in a slice, sorted by tags.
func (s *Source) seriesOf(ctx context.Context, m *metricPlan, end int64) ([]*job, error) {
	from, to := max(end-sliceMS+1, s.o.Select.MinMS), min(end, s.o.Select.MaxMS)
	if from > to {
		return nil, nil
	}
	var rows []Row
	var damage []error
	for some, err := range s.o.Keyspace.Rows(ctx, m.name, from, to) {
		var damaged *DamageError
		switch {
		case errors.As(err, &damaged):
			damage = append(damage, damaged)
		case err != nil:
			return nil, err
		}
		rows = append(rows, some...)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(compareTags(a.Tags, b.Tags), cmp.Compare(a.TimeMS, b.TimeMS))
	})
	var list []*job
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && compareTags(rows[n].Tags, rows[0].Tags) == 0 {
			n++
		}
		ls, err := m.mapping.labels(rows[0].Tags)
		if err != nil {
			return nil, fmt.Errorf("kairosdb: %s: %w", seriesText(m.name, rows[0].Tags), err)
		}
		if s.o.Select.Wants(ls) {
			list = append(list, &job{
				metric: m, tags: rows[0].Tags, labels: s.o.Select.Labels(ls), rows: rows[:n:n], fromMS: from, endMS: to,
			})
		}
		rows = rows[n:]
	}
	if len(damage) > 0 { // Report damage first, as a series without tags or rows.
		list = slices.Insert(list, 0, &job{metric: m, fromMS: from, endMS: to, damage: damage})
	}
	return list, nil
}

// read reads a job, or the part of it that fits in a piece.
func (s *Source) read(ctx context.Context, j *job) piece {
	p := piece{job: j, samples: &chunk.Samples{}}
	for _, d := range j.damage {
		p.skips.add("index", d.Error(), 0)
	}
	if !j.isResumed {
		if p.err = s.countOthers(ctx, j, &p.skips); p.err != nil {
			return p
		}
	}
	for p.step = j.step; ; p.step++ {
		// The first part ends with the step that contains fromMS. Steps are left-open.
		p.untilMS = min(j.endMS, roundUp(j.fromMS, stepsMS[p.step]))
		found := skips{}
		var fits bool
		if fits, p.err = s.collect(ctx, j, p.untilMS, stepsMS[p.step] == 1, p.samples, &found); p.err != nil {
			return p
		}
		if fits {
			p.skips.addAll(&found)
			break
		}
	}
	// At the start of a wider step, return to the wider step. Otherwise all later points would be read in the small
	// steps that one burst of points required.
	for p.step > 0 && p.untilMS%stepsMS[p.step-1] == 0 {
		p.step--
	}
	return p
}

// roundUp rounds t up to a multiple of step.
func roundUp(t, step int64) int64 {
	rest := t % step
	switch {
	case rest > 0:
		return t - rest + step
	default:
		return t - rest
	}
}

// collect reads the numeric points of j up to until. If there are more than pieceSamples points and all is false, it
// stops and returns false.
func (s *Source) collect(
	ctx context.Context, j *job, until int64, all bool, into *chunk.Samples, skipped *skips,
) (bool, error) {
	into.Reset()
	inOrder, rounded := true, 0
	for i := range j.rows {
		if !j.rows[i].IsNumber {
			continue
		}
		for point, err := range s.o.Keyspace.Points(ctx, &j.rows[i], j.fromMS, until) {
			var damaged *DamageError
			switch {
			case errors.As(err, &damaged):
				skipped.add(seriesText(j.metric.name, j.tags), damaged.Error(), 1)
				continue
			case err != nil:
				return false, err
			}
			if len(into.T) >= s.pieceSamples && !all {
				return false, nil
			}
			if n := len(into.T); n > 0 && point.TimeMS <= into.T[n-1] {
				inOrder = false
			}
			if point.IsRounded {
				rounded++
			}
			into.AppendFloat(point.TimeMS, 0, point.Value)
		}
	}
	if rounded > 0 {
		skipped.add(seriesText(j.metric.name, j.tags),
			"integers above 2^53 are rounded to floating-point precision and imported", 0)
	}
	if !inOrder {
		if n := sortSamples(into); n > 0 {
			skipped.add(seriesText(j.metric.name, j.tags),
				"more than one point has the same timestamp, with different types; the largest is kept", n)
		}
	}
	return true, nil
}

// sortSamples sorts floats by time and keeps one per time. It returns how many were removed because a different value
// has the same time.
func sortSamples(samples *chunk.Samples) int {
	type sample struct {
		t int64
		v float64
	}
	list := make([]sample, len(samples.T))
	for i := range list {
		list[i] = sample{samples.T[i], samples.V[i]}
	}
	slices.SortFunc(list, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(math.Float64bits(a.v), math.Float64bits(b.v)))
	})
	list = slices.CompactFunc(list, func(a, b sample) bool {
		return a.t == b.t && math.Float64bits(a.v) == math.Float64bits(b.v)
	})
	samples.Reset()
	for _, x := range list {
		samples.AppendFloat(x.t, 0, x.v)
	}
	samples.Normalize()
	return len(list) - samples.Len()
}

// countOthers counts the points of a job that aren't numbers.
func (s *Source) countOthers(ctx context.Context, j *job, skipped *skips) error {
	for i := range j.rows {
		r := &j.rows[i]
		if r.IsNumber {
			continue
		}
		n := 0
		for _, err := range s.o.Keyspace.Points(ctx, r, j.fromMS, j.endMS) {
			var damaged *DamageError
			if err != nil && !errors.As(err, &damaged) {
				return err
			}
			n++
		}
		if n > 0 {
			skipped.add(
				fmt.Sprintf("points of type %s of metric %s", r.Type, r.Metric), "the values are not numbers", n,
			)
		}
	}
	return nil
}
