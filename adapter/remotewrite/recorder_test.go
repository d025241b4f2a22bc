package remotewrite

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
)

// recorder replaces a store in tests of the decoder: it records the content of batches. Other tests use a real store.
type recorder struct {
	mu      sync.Mutex
	aliases map[string]*recordedSeries
	series  map[string]*recordedSeries
	samples []recorded
	batches int
	defines int
	// floatErr and defineErr, if set, may reject a sample or a series; commitErr may fail a batch.
	floatErr  func(t int64) error
	defineErr func(ls labels.Labels) error
	commitErr func(batch int) error
	// exemplarErr, if set, may reject an exemplar.
	exemplarErr func(exemplar.Exemplar) error
	exemplars   []recordedExemplar
}

// recordedSeries must have the handle as its first field, so that both have the same address.
type recordedSeries struct {
	handle storage.Series
	labels string
}

// recorded is a sample whose values compare bit by bit.
type recorded struct {
	series string
	t, st  int64
	bits   uint64
	hist   string // a histogram's canonical form
}

func newRecorder() *recorder {
	return &recorder{aliases: map[string]*recordedSeries{}, series: map[string]*recordedSeries{}}
}

func (r *recorder) newBatch(string) adapter.Batch {
	r.batches++
	return &recorderBatch{recorder: r, refs: map[*storage.Series]*recordedSeries{}, number: r.batches}
}

type recorderBatch struct {
	*recorder
	number  int
	refs    map[*storage.Series]*recordedSeries
	pending []recorded
	traces  []recordedExemplar
	isOver  bool
}

func (b *recorderBatch) Lookup(alias []byte) (*storage.Series, bool) {
	s, ok := b.aliases[string(alias)]
	if !ok {
		return nil, false
	}
	b.refs[&s.handle] = s
	return &s.handle, true
}

func (b *recorderBatch) Define(alias []byte, ls labels.Labels) (*storage.Series, error) {
	b.defines++
	if b.defineErr != nil {
		if err := b.defineErr(ls); err != nil {
			return nil, err
		}
	}
	nameless := false
	ls.Range(func(l labels.Label) { nameless = nameless || l.Name == "" })
	name, twice := ls.HasDuplicateLabelNames()
	switch {
	case nameless:
		return nil, &storage.LabelError{Reason: storage.ReasonEmptyLabelName, Detail: "no name", Series: ls.String()}
	case twice:
		return nil, &storage.LabelError{Reason: storage.ReasonDuplicateLabel, Detail: name, Series: ls.String()}
	case ls.Get(labels.MetricName) == "":
		return nil, &storage.LabelError{
			Reason: storage.ReasonMissingMetricName, Detail: "no __name__", Series: ls.String(),
		}
	}
	text := ls.WithoutEmpty().Copy().String()
	s := b.series[text]
	if s == nil {
		s = &recordedSeries{labels: text}
		b.series[text] = s
	}
	if alias != nil {
		b.aliases[string(alias)] = s
	}
	b.refs[&s.handle] = s
	return &s.handle, nil
}

func (b *recorderBatch) add(ref *storage.Series, s recorded) error {
	series := b.refs[ref]
	if series == nil || b.isOver {
		panic("a series of another batch, or a batch that is over")
	}
	if b.floatErr != nil {
		if err := b.floatErr(s.t); err != nil {
			return err
		}
	}
	s.series = series.labels
	b.pending = append(b.pending, s)
	return nil
}

func (b *recorderBatch) Float(ref *storage.Series, t, st int64, v float64) error {
	return b.add(ref, recorded{t: t, st: st, bits: bitsOf(v)})
}

func (b *recorderBatch) Histogram(
	ref *storage.Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram,
) error {
	hist, err := canonicalText(t, st, h, fh)
	if err != nil {
		return &storage.InvalidHistogramError{Err: err}
	}
	return b.add(ref, recorded{t: t, st: st, hist: hist})
}

func (b *recorderBatch) Exemplar(ref *storage.Series, e exemplar.Exemplar) error {
	series := b.refs[ref]
	switch {
	case series == nil || b.isOver:
		panic("a series of another batch, or a batch that is over")
	case b.exemplarErr != nil:
		if err := b.exemplarErr(e); err != nil {
			return err
		}
	}
	b.traces = append(b.traces, recordedExemplar{series.labels, e.Ts, bitsOf(e.Value), e.Labels.String()})
	return nil
}

// recordedExemplar is an exemplar whose values compare bit by bit.
type recordedExemplar struct {
	series string
	t      int64
	bits   uint64
	labels string
}

func canonicalText(t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (string, error) {
	c, err := chunk.CanonicalHistogram(chunk.Histogram{T: t, ST: st, Int: h, Float: fh})
	if err != nil {
		return "", err
	}
	return string(chunk.AppendHistogramBytes(nil, c)), nil
}

// histogramOf is the inverse of canonicalText.
func histogramOf(t testing.TB, s recorded) chunk.Histogram {
	h, err := chunk.ParseHistogram([]byte(s.hist))
	require.NoError(t, err)
	return h
}

func (b *recorderBatch) Commit(context.Context) error {
	if b.isOver {
		panic("a batch is used once")
	}
	b.isOver = true
	if b.commitErr != nil {
		if err := b.commitErr(b.number); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.samples = append(b.samples, b.pending...)
	b.exemplars = append(b.exemplars, b.traces...)
	return nil
}

func (b *recorderBatch) Release() {
	if b.isOver {
		panic("a batch is used once")
	}
	b.isOver = true
}

// newTestHandler returns a handler that writes to a recorder.
func newTestHandler(t testing.TB, r *recorder, change func(*Options)) http.Handler {
	opts := DefaultOptions()
	opts.Registerer = prometheus.NewRegistry()
	if change != nil {
		change(&opts)
	}
	h, err := newHandler(r.newBatch, opts)
	require.NoError(t, err)
	return h
}

// newTestDecoder returns a decoder that writes to a recorder.
func newTestDecoder(r *recorder) *decoder {
	return &decoder{ctx: context.Background(), tenant: "t", newBatch: r.newBatch}
}
