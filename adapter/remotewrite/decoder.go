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
	// errMalformed means that a body isn't a valid message of the negotiated type.
	errMalformed = errors.New("remotewrite: malformed protobuf")
	// errFirstSymbol means that the first symbol of a 2.0 request isn't empty.
	errFirstSymbol = errors.New("remotewrite: the first symbol must be the empty string")
	// errTooManySymbols means that a 2.0 request has more symbols than maxSymbols.
	errTooManySymbols = errors.New("remotewrite: too many symbols in one request")

	errTooManyLabels = fmt.Errorf("more than %d labels, or more than %d bytes of them", maxLabels, maxAliasBytes)
)

// counts are the numbers of elements of each kind.
type counts struct {
	floats, histograms, exemplars int
}

// decoder adds the samples of one request to batches. Its buffers are reused by later requests.
type decoder struct {
	ctx        context.Context
	tenant     string
	newBatch   func(tenant string) adapter.Batch
	onMetadata func(ctx context.Context, tenant string, m Metadata)

	// batch collects samples; pending counts them and pendingBytes is their estimated size.
	batch        adapter.Batch
	pending      counts
	pendingBytes int

	// series is the current series, to which samples are added. If it was rejected, series is nil, and its samples are
	// counted in rejections[rejection]. alias is the alias by which it was looked up.
	series    *storage.Series
	rejection int
	alias     []byte

	// written counts durable elements. dropped counts rejected exemplars, which 1.0 doesn't report.
	written counts
	dropped int
	// droppedByRules counts the elements that relabeling rules dropped.
	droppedByRules counts
	rejections     rejections

	builder labels.ScratchBuilder
	labels  labels.Labels
	built   []byte // labels joined from separate fields, or written from symbols
	canon   []byte
	refs    []byte
	symbols []symbol
	// exemplarLabels are the labels of the current exemplar.
	exemplarLabels exemplarLabels
	lastMetadata   metadataV2
	histV1         prompb.Histogram
	histV2         writev2.Histogram
}

// reset prepares the decoder for the next request. It keeps buffers up to 1 MiB.
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
		builder: d.builder, rejections: d.rejections[:0],
		exemplarLabels: exemplarLabels{builder: d.exemplarLabels.builder, labels: d.exemplarLabels.labels},
		built:          d.built[:0], canon: d.canon[:0], refs: d.refs[:0], symbols: d.symbols[:0],
	}
	clear(d.rejections[:cap(d.rejections)])
}

// checkEvery is the number of series after which the decoder checks whether the client has left. A large body of
// rejected series may take seconds, and commits no batch.
const checkEvery = 1024

// checkClient returns the error of the request's context if n, the number of decoded series, is a multiple of
// checkEvery.
func (d *decoder) checkClient(n int) error {
	if n%checkEvery != 0 {
		return nil
	}
	return d.ctx.Err()
}

// float adds a sample to the current series.
func (d *decoder) float(t, st int64, v float64) error {
	if d.series == nil {
		d.rejections[d.rejection].samples++
		return nil
	}
	if err := d.batch.Float(d.series, t, st, v); err != nil {
		return d.rejectSample(err, t, &d.droppedByRules.floats)
	}
	d.pending.floats++
	return d.addSize(adapter.SampleBytes)
}

// histogram adds a histogram, which has size bytes on the wire, to the current series.
func (d *decoder) histogram(t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram, size int) error {
	if d.series == nil {
		d.rejections[d.rejection].samples++
		return nil
	}
	if err := d.batch.Histogram(d.series, t, st, h, fh); err != nil {
		return d.rejectSample(err, t, &d.droppedByRules.histograms)
	}
	d.pending.histograms++
	return d.addSize(adapter.SampleBytes + size)
}

// addSize adds a sample's size to the batch and commits the batch at adapter.BatchBytes. The series is then resolved
// again, because it belonged to the old batch.
func (d *decoder) addSize(size int) error {
	if d.pendingBytes += size; d.pendingBytes < adapter.BatchBytes {
		return nil
	}
	if err := d.commit(); err != nil {
		return err
	}
	return d.resolveSeries(d.alias)
}

// commit makes the pending samples durable.
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
		if errors.As(err, &limit) { // The limit applies to the samples of all batches of the request.
			return limit.ForRequest(d.written.floats + d.written.histograms + d.pending.floats + d.pending.histograms)
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

// rejectSeries records that all samples of the current series are rejected.
func (d *decoder) rejectSeries(reason string, err error) {
	place, isNew := d.rejections.index(reason)
	d.series, d.rejection = nil, place
	d.rejections[place].series++
	if isNew {
		d.rejections[place].example = printableText(strings.TrimPrefix(err.Error(), reason+": "))
	}
}

// rejectSample counts a sample that wasn't stored because of err. A sample that a relabeling rule dropped is counted in
// ruled. If the store rejected only this sample, it is counted in the rejections, by reason. All other errors fail the
// request, and are returned.
func (d *decoder) rejectSample(err error, t int64, ruled *int) error {
	var invalid *storage.InvalidHistogramError
	switch {
	case err == adapter.ErrDropped:
		*ruled++
	case adapter.TimeReason(err) != "":
		d.countRejected(adapter.TimeReason(err), func() string { return d.sampleText(t, err) })
	case errors.As(err, &invalid):
		d.countRejected(adapter.ReasonInvalidHistogram, func() string { return d.sampleText(t, err) })
	default:
		return err
	}
	return nil
}

// countRejected counts one rejected sample of the current series.
func (d *decoder) countRejected(reason string, example func() string) {
	place, isNew := d.rejections.index(reason)
	d.rejections[place].samples++
	if isNew {
		d.rejections[place].example = printableText(example())
	}
}

// sampleText formats an error about a sample of the current series.
func (d *decoder) sampleText(t int64, err error) string {
	return fmt.Sprintf("%s at %d: %v", d.describe(), t, err)
}

// describe returns the current series as text, which may be long.
func (d *decoder) describe() string {
	if d.parseLabels(d.alias) < 0 {
		return "?"
	}
	d.builder.Sort()
	d.builder.Overwrite(&d.labels)
	return d.labels.String()
}
