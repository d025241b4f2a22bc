package remotewrite

import (
	"errors"
	"math"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// exemplarLabels collects the labels of an exemplar. Labels above a bound are counted but not built.
type exemplarLabels struct {
	builder labels.ScratchBuilder
	labels  labels.Labels
	n, size int
}

// Bounds on the labels of an exemplar: their number, and their length in bytes. Prometheus allows 128 characters, which
// never exceed either bound.
const (
	maxExemplarLabels = exemplar.ExemplarMaxLabelSetLength
	maxExemplarBytes  = 4 * exemplar.ExemplarMaxLabelSetLength
)

func (l *exemplarLabels) reset() {
	l.builder.Reset()
	l.n, l.size = 0, 0
}

func (l *exemplarLabels) add(name, value []byte) {
	l.n++
	l.size += len(name) + len(value)
	if !l.exceedsLimit() {
		l.builder.Add(unsafeString(name), unsafeString(value))
	}
}

func (l *exemplarLabels) exceedsLimit() bool {
	return l.n > maxExemplarLabels || l.size > maxExemplarBytes
}

// decodeExemplarV1 decodes a prometheus.Exemplar. As in Prometheus, a rejected exemplar is counted and never fails the
// request.
func (d *decoder) decodeExemplarV1(m []byte) error {
	l := &d.exemplarLabels
	l.reset()
	var v float64
	var t int64
	for i := 0; i < len(m); {
		number, wire, next := readTag(m, i)
		if next < 0 {
			return errMalformed
		}
		switch {
		case number > 3:
			i = skipField(m, next, wire)
		case number == 1 && wire == wireBytes:
			var field []byte
			if field, i = readDelimited(m, next); i < 0 {
				return errMalformed
			}
			name, value, ok := parseLabel(field)
			if !ok {
				return errMalformed
			}
			l.add(name, value)
		case number == 2 && wire == wireFixed64:
			var bits uint64
			bits, i = readFixed64(m, next)
			v = math.Float64frombits(bits)
		case number == 3 && wire == wireVarint:
			var bits uint64
			bits, i = readUvarint(m, next)
			t = int64(bits)
		default:
			return errMalformed
		}
		if i < 0 {
			return errMalformed
		}
	}
	if d.series == nil {
		d.rejections[d.rejection].exemplars++
		return nil
	}
	err := d.addExemplar(t, v)
	if isExemplarError(err) {
		d.dropped++
		return nil
	}
	return d.rejectExemplar(err) // a retry may be accepted
}

// decodeExemplarV2 decodes an io.prometheus.write.v2.Exemplar. Rejected exemplars are reported to the sender.
func (d *decoder) decodeExemplarV2(body, m []byte) error {
	l := &d.exemplarLabels
	l.reset()
	var v float64
	var t int64
	refs := pairedRefs{d: d, body: body}
	for i := 0; i < len(m); {
		number, wire, next := readTag(m, i)
		if next < 0 {
			return errMalformed
		}
		var bits uint64
		switch {
		case number > 3:
			i = skipField(m, next, wire)
		case number == 1 && wire == wireVarint:
			bits, i = readUvarint(m, next)
			refs.addRef(uint32(bits))
		case number == 1 && wire == wireBytes:
			var packed []byte
			packed, i = readDelimited(m, next)
			for j := 0; j < len(packed) && i > 0; {
				if bits, j = readUvarint(packed, j); j < 0 {
					return errMalformed
				}
				refs.addRef(uint32(bits))
			}
		case number == 2 && wire == wireFixed64:
			bits, i = readFixed64(m, next)
			v = math.Float64frombits(bits)
		case number == 3 && wire == wireVarint:
			bits, i = readUvarint(m, next)
			t = int64(bits)
		default:
			return errMalformed
		}
		if i < 0 {
			return errMalformed
		}
	}
	if d.series == nil {
		d.rejections[d.rejection].exemplars++
		return nil
	}
	err := refs.err()
	if err == nil {
		err = d.addExemplar(t, v)
	}
	return d.rejectExemplar(err)
}

// pairedRefs adds labels to an exemplar from a list of symbol references, which alternate between names and values.
type pairedRefs struct {
	d             *decoder
	body          []byte
	name          uint32
	n             int
	hasInvalidRef bool
}

func (p *pairedRefs) addRef(ref uint32) {
	p.n++
	p.hasInvalidRef = p.hasInvalidRef || int(ref) >= len(p.d.symbols)
	switch {
	case p.hasInvalidRef:
	case p.n%2 != 0:
		p.name = ref
	default:
		p.d.exemplarLabels.add(p.d.symbolText(p.body, p.name), p.d.symbolText(p.body, ref))
	}
}

func (p *pairedRefs) err() error {
	switch {
	case p.n%2 != 0:
		return errOddReferences
	case p.hasInvalidRef:
		return errReference
	}
	return nil
}

// addExemplar adds the exemplar whose labels were decoded to the current series.
func (d *decoder) addExemplar(t int64, v float64) error {
	l := &d.exemplarLabels
	if l.exceedsLimit() {
		return errExemplarLabels
	}
	l.builder.Sort()
	l.builder.Overwrite(&l.labels)
	e := exemplar.Exemplar{Labels: l.labels, Value: v, Ts: t, HasTs: true}
	if err := d.batch.Exemplar(d.series, e); err != nil {
		if err == adapter.ErrDropped {
			d.droppedByRules.exemplars++
			return nil
		}
		return err
	}
	d.pending.exemplars++
	return d.addSize(adapter.SampleBytes + l.size)
}

var errExemplarLabels = errors.New("the labels of an exemplar have more than 128 characters")

// isExemplarError reports whether err concerns one exemplar only.
func isExemplarError(err error) bool {
	var invalid *storage.InvalidExemplarError
	var limit *tenant.LimitError
	return errors.As(err, &limit) || errors.Is(err, errExemplarLabels) || errors.As(err, &invalid) ||
		errors.Is(err, storage.ErrTooOld) || errors.Is(err, storage.ErrTooFarAhead)
}

// rejectExemplar counts a rejected exemplar. It returns other errors, which fail the request.
func (d *decoder) rejectExemplar(err error) error {
	reason := adapter.ReasonInvalidExemplar
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOddReferences), errors.Is(err, errReference):
		reason = reasonBadSymbols
	case adapter.TimeReason(err) != "":
		reason = adapter.TimeReason(err)
	case !isExemplarError(err):
		return err
	}
	if limit := (*tenant.LimitError)(nil); errors.As(err, &limit) {
		reason = limit.Limit
	}
	place, isNew := d.rejections.index(reason)
	d.rejections[place].exemplars++
	if isNew {
		d.rejections[place].example = printableText(err.Error() + ", in an exemplar of " + d.describe())
	}
	return nil
}
