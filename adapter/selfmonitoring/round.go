package selfmonitoring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/adapter"
)

// errTooMany means that a round exceeds Options.MaxSamples.
var errTooMany = errors.New("selfmonitoring: too many metrics to store")

// round is the state of one round, which stores all metrics once.
type round struct {
	m  *Monitor
	in *adapter.Intake
	at int64

	stored   map[uint64]labels.Labels
	samples  int
	rejected int
}

func (m *Monitor) newRound(ctx context.Context, at time.Time) *round {
	return &round{
		m: m, in: adapter.NewIntake(ctx, Tenant, m.newBatch), at: at.UnixMilli(),
		stored: make(map[uint64]labels.Labels, len(m.stored)),
	}
}

// storeRound gathers the metrics and commits them. If gathering fails, it stores the value 0 of metric up, and returns
// no error. After an error, none or only some of the samples may be stored.
func (m *Monitor) storeRound(ctx context.Context, at time.Time) error {
	r := m.newRound(ctx, at)
	defer func() { r.in.Release() }()
	begin := time.Now()
	text, err := gatherText(m.o.Gatherer)
	if err == nil {
		err = r.addAll(text)
	}
	up := 1.0
	var failed *gatherError
	switch {
	case errors.As(err, &failed):
		m.o.Logger.Warn("can't gather Cassia's own metrics", "err", err)
		r.in.Release() // the samples gathered so far are incomplete
		r, up = m.newRound(ctx, at), 0
	case err != nil:
		return err
	}
	scraped := r.samples
	for _, own := range []struct {
		name string
		v    float64
	}{
		{"up", up}, {"scrape_duration_seconds", time.Since(begin).Seconds()},
		{"scrape_samples_scraped", float64(scraped)},
	} {
		if err := r.add(labels.FromStrings(labels.MetricName, own.name), own.v); err != nil {
			return err
		}
	}
	if err := r.markStale(); err != nil {
		return err
	}
	if err := r.in.Commit(); err != nil {
		return err
	}
	m.stored = r.stored
	m.metrics.samples.Add(float64(r.in.DurableSamples()))
	m.metrics.rejected.Add(float64(r.rejected))
	return nil
}

// gatherError is an error of gathering or parsing the metrics.
type gatherError struct{ error }

func (e *gatherError) Unwrap() error { return e.error }

// gatherText returns the metrics as a response to a scrape.
func gatherText(from prometheus.Gatherer) ([]byte, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, &gatherError{err}
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return nil, &gatherError{err}
		}
	}
	return text.Bytes(), nil
}

// addAll adds the samples that Prometheus would store for a scrape. Histograms are stored with classic buckets, which
// is Prometheus' default.
func (r *round) addAll(text []byte) error {
	p := textparse.NewProtobufParser(text, true, true, false, false, labels.NewSymbolTable())
	var ls labels.Labels
	var help []byte
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &gatherError{err}
		}
		switch entry {
		case textparse.EntryHelp:
			_, text := p.Help()
			help = append(help[:0], text...)
		case textparse.EntryType:
			r.describe(p, help)
		case textparse.EntrySeries:
			if r.samples >= r.m.o.MaxSamples {
				return &gatherError{fmt.Errorf("%w: %d", errTooMany, r.m.o.MaxSamples)}
			}
			p.Labels(&ls)
			_, _, v := p.Series()
			if err := r.add(ls, v); err != nil {
				return err
			}
			r.samples++
		}
	}
}

// describe stores the metadata of the current metric, whose help precedes its type.
func (r *round) describe(p textparse.Parser, help []byte) {
	if r.m.o.Metadata == nil {
		return
	}
	name, kind := p.Type()
	r.m.o.Metadata(Tenant, name, string(kind), nil, help)
}

// add adds a sample with the labels of a scrape: a metric's own label named job or instance is renamed to exported_job
// or exported_instance. Start timestamps are dropped, which is Prometheus' default.
func (r *round) add(ls labels.Labels, v float64) error {
	b := labels.NewBuilder(ls)
	for _, target := range []labels.Label{
		{Name: model.JobLabel, Value: job}, {Name: model.InstanceLabel, Value: r.m.o.Instance},
	} {
		if own := ls.Get(target.Name); own != "" {
			b.Set(model.ExportedLabelPrefix+target.Name, own)
		}
		b.Set(target.Name, target.Value)
	}
	ls = b.Labels()
	switch err := r.in.Float(ls, r.at, 0, v); {
	case isRejected(err):
		r.rejected++
		return nil
	case err != nil:
		return err
	}
	r.stored[ls.Hash()] = ls
	return nil
}

// markStale adds stale markers to the series that ended since the last round.
func (r *round) markStale() error {
	for hash, ls := range r.m.stored {
		if _, there := r.stored[hash]; there {
			continue
		}
		if err := r.in.Float(ls, r.at, 0, math.Float64frombits(value.StaleNaN)); err != nil && !isRejected(err) {
			return err
		}
	}
	return nil
}

func isRejected(err error) bool {
	var rejected *adapter.RejectedError
	return errors.As(err, &rejected)
}
