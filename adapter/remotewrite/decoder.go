package remotewrite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

var (
	// errMalformed means that a body isn't the message it claims to be.
	errMalformed = errors.New("remotewrite: malformed protobuf")
	// errFirstSymbol means that a request of 2.0 breaks the symbol table's one rule.
	errFirstSymbol = errors.New("remotewrite: the first symbol must be the empty string")
	// errTooManySymbols means that a request of 2.0 has more symbols than maxSymbols.
	errTooManySymbols = errors.New("remotewrite: too many symbols in one request")

	errTooManyLabels = fmt.Errorf("more than %d labels, or more than %d bytes of them", maxLabels, maxAliasBytes)
)

// counts are the numbers of elements of each kind.
type counts struct {
	floats, histograms, exemplars int
}

// decoder turns one request into batches. Its buffers serve request after request.
type decoder struct {
	ctx        context.Context
	tenant     string
	newBatch   func(tenant string) adapter.Batch
	onMetadata func(ctx context.Context, tenant string, m Metadata)

	// batch collects samples, pending is their number and pendingBytes their weight.
	batch        adapter.Batch
	pending      counts
	pendingBytes int

	// series takes the samples that are read; when it is nil, they count as refused for refusals[refusal].
	// alias is what it was found by.
	series  *storage.Series
	refusal int
	alias   []byte

	// written counts durable elements; dropped counts the exemplars that weren't taken, which 1.0 doesn't report.
	written counts
	dropped int
	// ruled are those that rules dropped.
	ruled    counts
	refusals rejections

	builder labels.ScratchBuilder
	labels  labels.Labels
	built   []byte // labels gathered from fields that don't lie side by side, or written from symbols
	canon   []byte
	refs    []byte
	symbols []symbol
	// exemplarLabels are those of the exemplar that is read.
	exemplarLabels exemplarLabels
	lastMetadata   metadataV2
	histV1         prompb.Histogram
	histV2         writev2.Histogram
}

// reset prepares for the next request; buffers stay, but for great ones.
func (d *decoder) reset() {
	const keep = 1 << 20
	for _, buf := range []*[]byte{&d.built, &d.canon, &d.refs} {
		if cap(*buf) > keep {
			*buf = nil
		}
	}
	if cap(d.symbols) > keep/8 {
		d.symbols = nil
	}
	*d = decoder{
		builder: d.builder, refusals: d.refusals[:0],
		exemplarLabels: exemplarLabels{builder: d.exemplarLabels.builder, labels: d.exemplarLabels.labels},
		built:          d.built[:0], canon: d.canon[:0], refs: d.refs[:0], symbols: d.symbols[:0],
	}
	clear(d.refusals[:cap(d.refusals)])
}

// float takes one sample for the series that was resolved last.
func (d *decoder) float(t, st int64, v float64) error {
	if d.series == nil {
		d.refusals[d.refusal].samples++
		return nil
	}
	if err := d.batch.Float(d.series, t, st, v); err != nil {
		return d.refuseSample(err, t, &d.ruled.floats)
	}
	d.pending.floats++
	return d.weigh(adapter.SampleBytes)
}

// histogram takes one histogram sample, which had size bytes on the wire.
func (d *decoder) histogram(t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram, size int) error {
	if d.series == nil {
		d.refusals[d.refusal].samples++
		return nil
	}
	if err := d.batch.Histogram(d.series, t, st, h, fh); err != nil {
		return d.refuseSample(err, t, &d.ruled.histograms)
	}
	d.pending.histograms++
	return d.weigh(adapter.SampleBytes + size)
}

// weigh counts a sample's bytes and commits a batch that has grown large. The series is looked for again then:
// it belonged to that batch.
func (d *decoder) weigh(size int) error {
	if d.pendingBytes += size; d.pendingBytes < adapter.BatchBytes {
		return nil
	}
	if err := d.commit(); err != nil {
		return err
	}
	return d.resolve(d.alias)
}

// commit makes pending samples durable.
func (d *decoder) commit() error {
	b := d.batch
	if b == nil {
		return nil
	}
	d.batch = nil
	if d.pending == (counts{}) {
		b.Release()
		return nil
	}
	if err := b.Commit(d.ctx); err != nil {
		var limit *tenant.LimitError
		if errors.As(err, &limit) { // The request may have had batches before this one.
			return limit.Of(d.written.floats + d.written.histograms + d.pending.floats + d.pending.histograms)
		}
		return err
	}
	d.written.floats += d.pending.floats
	d.written.histograms += d.pending.histograms
	d.written.exemplars += d.pending.exemplars
	d.pending, d.pendingBytes = counts{}, 0
	return nil
}

// release discards pending samples.
func (d *decoder) release() {
	if d.batch != nil {
		d.batch.Release()
		d.batch = nil
	}
}

// refuse notes that no sample of the series can be taken.
func (d *decoder) refuse(reason string, err error) {
	place, isNew := d.refusals.at(reason)
	d.series, d.refusal = nil, place
	d.refusals[place].series++
	if isNew {
		d.refusals[place].example = printable(strings.TrimPrefix(err.Error(), reason+": "))
	}
}

// refuseSample counts a sample that the store won't take, or, in ruled, that a rule drops; other errors end the request.
func (d *decoder) refuseSample(err error, t int64, ruled *int) error {
	var invalid *storage.InvalidHistogramError
	switch {
	case err == adapter.ErrDropped:
		*ruled++
	case adapter.TimeReason(err) != "":
		d.count(adapter.TimeReason(err), func() string { return d.sampleText(t, err) })
	case errors.As(err, &invalid):
		d.count(adapter.ReasonInvalidHistogram, func() string { return d.sampleText(t, err) })
	default:
		return err
	}
	return nil
}

// count counts one refused sample of the series that was resolved last.
func (d *decoder) count(reason string, example func() string) {
	place, isNew := d.refusals.at(reason)
	d.refusals[place].samples++
	if isNew {
		d.refusals[place].example = printable(example())
	}
}

// sampleText describes the error of a sample.
func (d *decoder) sampleText(t int64, err error) string {
	return fmt.Sprintf("%s at %d: %v", d.describe(), t, err)
}

// describe returns the series as text, which may be long.
func (d *decoder) describe() string {
	if d.parseLabels(d.alias) < 0 {
		return "?"
	}
	d.builder.Sort()
	d.builder.Overwrite(&d.labels)
	return d.labels.String()
}
