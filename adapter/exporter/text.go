package exporter

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
)

// Format is a text format.
type Format struct {
	// Name is the name on the command line, and Extension the extension of files.
	Name, Extension string
	// byMetric is set if all samples of a metric must be contiguous, over the whole range.
	byMetric bool
	new      func(r *run) writer
}

// writer writes the lines of a Format. It may write multiple files, one after the other.
type writer interface {
	// begin and end write the first and last lines of a file.
	begin(*lines)
	end(*lines)
	// metric writes the lines that precede the series of a metric.
	metric(ctx context.Context, w *lines, name string) error
	// series writes samples of a series and returns the number of written samples. s has at least one sample. Samples
	// that the format can't express aren't written.
	series(w *lines, ls labels.Labels, s *chunk.Samples) (samples int)
}

// The text formats.
var (
	OpenMetrics = Format{
		Name: "openmetrics", Extension: ".om", byMetric: true, new: func(r *run) writer { return &openMetrics{run: r} },
	}
	JSONLines = Format{Name: "jsonl", Extension: ".jsonl", new: func(r *run) writer { return &jsonLines{run: r} }}
	CSV       = Format{Name: "csv", Extension: ".csv", new: func(r *run) writer { return &csv{run: r} }}
)

// textRun is the state of an export to text.
type textRun struct {
	*run
	Format
	w writer
}

func newTextRun(s *storage.Store, f Format, o Options) *textRun {
	r := newRun(s, o)
	return &textRun{run: r, Format: f, w: f.new(r)}
}

// Text writes samples as text to w. If it returns no error, all samples have been written.
func Text(ctx context.Context, s *storage.Store, f Format, o Options, w io.Writer) (Stats, error) {
	r, out := newTextRun(s, f, o), linesTo(w)
	return r.one(ctx, out)
}

// TextFile writes samples as text to a file, which appears when it is complete.
func TextFile(ctx context.Context, s *storage.Store, f Format, o Options, path string) (Stats, error) {
	out, err := createLines(path)
	if err != nil {
		return Stats{}, err
	}
	return newTextRun(s, f, o).one(ctx, out)
}

// TextFolder writes samples as text to a folder, one file per day: 2027-01-31.om has the samples after that midnight,
// up to and including the next midnight.
func TextFolder(ctx context.Context, s *storage.Store, f Format, o Options, folder *Folder) (Stats, error) {
	r := newTextRun(s, f, o)
	err := r.days(ctx, func(day query.Span) error {
		name := time.UnixMilli(day.MinT-1).UTC().Format(time.DateOnly) + f.Extension
		out, err := createLines(filepath.Join(folder.partial, name))
		if err != nil {
			return err
		}
		before := r.stats.Samples
		r.w.begin(out)
		err = r.day(ctx, out, day)
		r.w.end(out)
		some := r.stats.Samples > before
		if err = out.finish(err, some); err == nil && some {
			r.stats.Files++
			r.stats.Bytes += out.size
		}
		return err
	})
	if err == nil {
		_, err = r.result()
	}
	err = folder.finish(err)
	return r.stats, err
}

// one writes all samples to one file.
func (r *textRun) one(ctx context.Context, out *lines) (Stats, error) {
	r.w.begin(out)
	var err error
	if r.byMetric {
		err = r.metricByMetric(ctx, out)
	} else {
		err = r.days(ctx, func(day query.Span) error { return r.day(ctx, out, day) })
	}
	if err == nil {
		_, err = r.result()
	}
	if err == nil || errors.Is(err, ErrNothing) && out.f == nil {
		r.w.end(out)
	}
	if err = out.finish(err, true); err == nil {
		r.stats.Files, r.stats.Bytes = 1, out.size
	}
	return r.stats, err
}

// days calls do for each day that may have samples. Like windows, a day is open at its start and closed at its end.
func (r *textRun) days(ctx context.Context, do func(query.Span) error) error {
	days, err := r.pieces(ctx, dayMS, 1)
	if err != nil {
		return err
	}
	r.total = len(days)
	for _, day := range days {
		if err := do(day); err != nil {
			return err
		}
		r.done++
	}
	return nil
}

// day writes the samples of a day, metric by metric.
func (r *textRun) day(ctx context.Context, out *lines, day query.Span) error {
	metrics, err := r.metrics(ctx, day)
	if err != nil {
		return err
	}
	for i, metric := range metrics {
		r.report(day, float64(i)/float64(len(metrics)))
		if err := r.metric(ctx, out, metric, []query.Span{day}); err != nil {
			return err
		}
	}
	return nil
}

// metricByMetric writes all days of a metric before the next metric.
func (r *textRun) metricByMetric(ctx context.Context, out *lines) error {
	days, err := r.pieces(ctx, dayMS, 1)
	if err != nil || len(days) == 0 {
		return err
	}
	metrics, err := r.metrics(ctx, query.Span{MinT: days[0].MinT, MaxT: days[len(days)-1].MaxT})
	if err != nil {
		return err
	}
	r.total = len(metrics)
	for _, metric := range metrics {
		if err := r.metric(ctx, out, metric, days); err != nil {
			return err
		}
		r.done++
	}
	return nil
}

// metric writes the series of a metric, day by day.
func (r *textRun) metric(ctx context.Context, out *lines, metric string, days []query.Span) error {
	named := false
	for i, day := range days {
		if len(days) > 1 {
			r.report(day, float64(i)/float64(len(days)))
		}
		list, err := r.series(ctx, day, metric)
		if err != nil {
			return err
		}
		for _, s := range list {
			samples, err := r.read(s)
			if err != nil {
				return err
			}
			if samples.Len() == 0 {
				continue
			}
			if !named {
				named = true
				if err := r.w.metric(ctx, out, metric); err != nil {
					return err
				}
			}
			r.leaveStarts(samples)
			r.leaveHistograms(s.Labels, len(samples.H))
			n := r.w.series(out, s.Labels, samples)
			r.leaveMade(len(samples.T) - n)
			if n > 0 {
				r.count(s.Labels, n, 0)
			}
			if out.err != nil {
				return out.err
			}
		}
	}
	return nil
}

// leaveStarts counts start timestamps, which no text format can express.
func (r *run) leaveStarts(s *chunk.Samples) {
	for _, st := range s.ST {
		if st != 0 {
			r.stats.LeftOut.StartTimestamps++
		}
	}
	for i := range s.H {
		if s.H[i].ST != 0 {
			r.stats.LeftOut.StartTimestamps++
		}
	}
}
