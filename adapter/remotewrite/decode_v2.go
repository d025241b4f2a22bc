package remotewrite

import (
	"errors"
	"fmt"

	"github.com/cassia-db/cassia/storage"
)

// Fields of io.prometheus.write.v2.Request and TimeSeries.
const (
	v2Reserved   = 3 // and all lower numbers, which 1.0 uses
	v2Symbols    = 4
	v2Timeseries = 5

	v2LabelsRefs = 1
	v2Samples    = 2
	v2Histograms = 3
	v2Exemplars  = 4
	v2Metadata   = 5
)

// maxSymbols bounds the symbol table of one request: a symbol can be two bytes on the wire and takes eight in memory.
const maxSymbols = 1 << 20

// symbol locates a string of the request in its body.
type symbol struct{ at, len uint32 }

var (
	errOddReferences = errors.New("the number of label references is odd")
	errReference     = errors.New("a reference points outside of the symbol table")
)

// metadataV2 is an io.prometheus.write.v2.Metadata with the reference of the metric's name.
type metadataV2 struct {
	metric           uint32
	typ              uint32
	unitRef, helpRef uint32
}

// decodeV2 decodes an io.prometheus.write.v2.Request. The caller must commit the pending samples afterwards.
func (d *decoder) decodeV2(body []byte) error {
	first, err := d.decodeSymbolsV2(body)
	if err != nil {
		return err
	}
	n := 0
	for i := first; i < len(body); {
		number, wire, next := readTag(body, i) // checked by decodeSymbolsV2
		if number != v2Timeseries {
			i = skipField(body, next, wire)
			continue
		}
		message, next := readDelimited(body, next)
		if err := d.decodeSeriesV2(body, message); err == errMalformed {
			return fmt.Errorf("%w: after %d series", err, n)
		} else if err != nil {
			return err
		}
		n++
		if err := d.checkClient(n); err != nil {
			return err
		}
		i = next
	}
	return nil
}

// decodeSymbolsV2 checks the fields of a request and collects its symbols, which may be anywhere in the message. It
// returns the offset of the first series.
func (d *decoder) decodeSymbolsV2(body []byte) (first int, err error) {
	first = len(body)
	for i := 0; i < len(body); {
		number, wire, next := readTag(body, i)
		if next < 0 {
			return 0, errMalformed
		}
		if number <= v2Reserved {
			return 0, errBodyOfV1
		}
		if number != v2Symbols && number != v2Timeseries {
			next = skipField(body, next, wire)
		} else if wire != wireBytes {
			return 0, errMalformed
		} else {
			var field []byte
			field, next = readDelimited(body, next)
			if number == v2Timeseries {
				first = min(first, i)
			} else if next > 0 {
				d.symbols = append(d.symbols, symbol{at: uint32(next - len(field)), len: uint32(len(field))})
			}
		}
		if i = next; i < 0 {
			return 0, errMalformed
		}
		if len(d.symbols) > maxSymbols {
			return 0, errTooManySymbols
		}
	}
	if len(d.symbols) > 0 && d.symbols[0].len > 0 {
		return 0, errFirstSymbol
	}
	return first, nil
}

// foundV2 is the result of scanning a series.
type foundV2 struct {
	// refs is the content of the labels_refs field if there is only one and it is packed. Otherwise needsGather is set,
	// and gatherV2 joins the fields.
	refs                     []byte
	needsGather, hasMetadata bool
	meta                     metadataV2
	// samples counts samples and histograms; sample is the last sample.
	samples                     int
	sample                      []byte
	hasHistograms, hasExemplars bool
}

// decodeSeriesV2 decodes an io.prometheus.write.v2.TimeSeries.
func (d *decoder) decodeSeriesV2(body, m []byte) error {
	var found foundV2
	if !scanV2(m, &found) {
		return errMalformed
	}
	if found.needsGather && !d.gatherV2(m, &found) {
		return errMalformed
	}
	alias, bad, err := d.encodeAliasV2(body, found.refs)
	if err != nil {
		return err
	}
	if bad == nil && (int(found.meta.unitRef) >= len(d.symbols) || int(found.meta.helpRef) >= len(d.symbols)) {
		bad = errReference
	}
	switch {
	case bad == errTooManyLabels:
		d.rejectSeries(storage.ReasonTooManyLabels, bad)
	case bad != nil:
		d.rejectSeries(reasonBadSymbols, bad)
	case found.samples > 0 || found.hasExemplars:
		if err := d.resolveSeries(alias); err != nil {
			return err
		}
	}
	if bad == nil && found.hasMetadata && d.onMetadata != nil {
		d.passMetadataV2(body, found)
	}
	if found.samples == 1 && !found.hasHistograms && !found.hasExemplars {
		return d.decodeSampleV2(found.sample)
	}
	return d.decodeSamplesV2(body, m)
}

// scanV2 checks the fields of a series and their content, except the content of samples, histograms and exemplars.
func scanV2(m []byte, found *foundV2) bool {
	for i := 0; i < len(m); {
		number, wire, next := readTag(m, i)
		if next < 0 {
			return false
		}
		var field []byte
		switch {
		case number == v2LabelsRefs && wire == wireVarint:
			found.needsGather = true
			i = skipField(m, next, wire)
		case number > v2Metadata:
			i = skipField(m, next, wire)
		case wire != wireBytes:
			return false
		default:
			field, i = readDelimited(m, next)
		}
		if i < 0 {
			return false
		}
		switch number {
		case v2LabelsRefs:
			// A packed field must not end within a number.
			if len(field) > 0 && field[len(field)-1] >= 0x80 {
				return false
			}
			found.needsGather = found.needsGather || found.refs != nil
			found.refs = field
		case v2Samples:
			found.samples++
			found.sample = field
		case v2Histograms:
			found.samples++
			found.hasHistograms = true
		case v2Exemplars:
			found.hasExemplars = true
		case v2Metadata:
			found.hasMetadata = true
			if !parseMetadataV2(field, &found.meta) {
				return false
			}
		}
	}
	return true
}

// gatherV2 joins the label references of a scanned series, as if they had been sent in one field.
func (d *decoder) gatherV2(m []byte, found *foundV2) bool {
	d.refs = d.refs[:0]
	for i := 0; i < len(m); {
		number, wire, next := readTag(m, i)
		end := skipField(m, next, wire)
		if number == v2LabelsRefs {
			if wire == wireBytes {
				_, end = readDelimited(m, next)
				n, start := readUvarint(m, next)
				d.refs = append(d.refs, m[start:start+int(n)]...)
			} else {
				d.refs = append(d.refs, m[next:end]...)
			}
		}
		i = end
	}
	found.refs = d.refs
	return true
}

// encodeAliasV2 returns the labels that refs refers to, in the encoding of 1.0. bad, if set, is the reason to reject
// the labels.
func (d *decoder) encodeAliasV2(body, refs []byte) (alias []byte, bad, err error) {
	alias = d.built[:0]
	table := d.symbols
	for i := 0; i < len(refs); {
		// This loop inlines readUvarint twice, because most references take one byte.
		name, next := uint64(refs[i]), i+1
		if name >= 0x80 {
			if name, next = readLongUvarint(refs, i); next < 0 {
				return nil, nil, errMalformed
			}
		}
		if next == len(refs) {
			bad = errOddReferences
			break
		}
		value, after := uint64(refs[next]), next+1
		if value >= 0x80 {
			if value, after = readLongUvarint(refs, next); after < 0 {
				return nil, nil, errMalformed
			}
		}
		if int(uint32(name)) >= len(table) || int(uint32(value)) >= len(table) {
			bad = errReference
			break
		}
		n, v := table[uint32(name)], table[uint32(value)]
		if len(alias)+int(n.len)+int(v.len) > maxAliasBytes {
			bad = errTooManyLabels
			break
		}
		alias = appendLabel(alias, unsafeString(body[n.at:n.at+n.len]), unsafeString(body[v.at:v.at+v.len]))
		i = after
	}
	d.built = alias
	if bad != nil && !isValidPacked(refs) {
		return nil, nil, errMalformed
	}
	return alias, bad, nil
}

// isValidPacked reports whether b is a sequence of valid varints.
func isValidPacked(b []byte) bool {
	for i := 0; i < len(b); {
		if _, i = readUvarint(b, i); i < 0 {
			return false
		}
	}
	return true
}

// parseMetadataV2 parses an io.prometheus.write.v2.Metadata into m. If a field is repeated, the last one counts.
func parseMetadataV2(b []byte, m *metadataV2) bool {
	for i := 0; i < len(b); {
		number, wire, next := readTag(b, i)
		if next < 0 {
			return false
		}
		known := number == 1 || number == 3 || number == 4
		if !known {
			i = skipField(b, next, wire)
		} else if wire != wireVarint {
			return false
		} else {
			var v uint64
			v, i = readUvarint(b, next)
			switch number {
			case 1:
				m.typ = uint32(v)
			case 3:
				m.helpRef = uint32(v)
			case 4:
				m.unitRef = uint32(v)
			}
		}
		if i < 0 {
			return false
		}
	}
	return true
}

// passMetadataV2 calls onMetadata with a series' metadata, once for consecutive series of a metric with equal metadata.
func (d *decoder) passMetadataV2(body []byte, found foundV2) {
	meta := found.meta
	if meta.typ == 0 && meta.unitRef == 0 && meta.helpRef == 0 {
		return
	}
	for i := 0; i < len(found.refs); {
		name, next := readUvarint(found.refs, i)
		value, next := readUvarint(found.refs, next)
		i = next
		if string(d.symbolText(body, uint32(name))) == "__name__" {
			meta.metric = uint32(value)
			break
		}
	}
	if meta == d.lastMetadata {
		return
	}
	d.lastMetadata = meta
	d.passMetadata(Metadata{
		Metric: familyOf(d.symbolText(body, meta.metric), meta.typ), Type: metricType(meta.typ),
		Unit: d.symbolText(body, meta.unitRef), Help: d.symbolText(body, meta.helpRef),
	})
}

// symbolText returns the symbol with the number ref, which must exist.
func (d *decoder) symbolText(body []byte, ref uint32) []byte {
	s := d.symbols[ref]
	return body[s.at : s.at+s.len]
}

// decodeSamplesV2 decodes the samples, histograms and exemplars of a scanned series.
func (d *decoder) decodeSamplesV2(body, m []byte) error {
	for i := 0; i < len(m); {
		number, wire, next := readTag(m, i)
		if wire != wireBytes {
			i = skipField(m, next, wire)
			continue
		}
		var field []byte
		field, i = readDelimited(m, next)
		var err error
		switch number {
		case v2Samples:
			err = d.decodeSampleV2(field)
		case v2Histograms:
			err = d.decodeHistogramV2(field)
		case v2Exemplars:
			err = d.decodeExemplarV2(body, field)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeSampleV2 decodes an io.prometheus.write.v2.Sample.
func (d *decoder) decodeSampleV2(b []byte) error {
	t, st, v, ok := parseSample(b, true)
	if !ok {
		return errMalformed
	}
	return d.float(t, st, v)
}
