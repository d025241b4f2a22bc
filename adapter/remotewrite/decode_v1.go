package remotewrite

import (
	"fmt"
	"unicode/utf8"
)

// Fields of prometheus.WriteRequest and prometheus.TimeSeries.
const (
	v1Timeseries = 1
	v1Metadata   = 3

	v1Labels     = 1
	v1Samples    = 2
	v1Exemplars  = 3
	v1Histograms = 4
)

// decodeV1 decodes a prometheus.WriteRequest. The caller must commit the pending samples afterwards.
func (d *decoder) decodeV1(body []byte) error {
	n := 0
	for i := 0; i < len(body); {
		number, wire, next := readTag(body, i)
		if next < 0 {
			return fmt.Errorf("%w: after %d series", errMalformed, n)
		}
		var err error
		switch {
		case (number == v2Symbols || number == v2Timeseries) && wire == wireBytes:
			return errBodyOfV2
		case number != v1Timeseries && number != v1Metadata:
			i = skipField(body, next, wire)
		case wire != wireBytes:
			err = errMalformed
		default:
			var message []byte
			if message, i = readDelimited(body, next); i < 0 {
				break
			}
			if number == v1Metadata {
				err = d.decodeMetadataV1(message)
				break
			}
			err = d.decodeSeriesV1(message)
			if n++; err == nil {
				err = d.checkClient(n)
			}
		}
		if i < 0 || err == errMalformed {
			return fmt.Errorf("%w: after %d series", errMalformed, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeSeriesV1 decodes a prometheus.TimeSeries.
func (d *decoder) decodeSeriesV1(m []byte) error {
	// All known senders put the label fields first.
	i := 0
	for i < len(m) && m[i] == tagLabels {
		if i+1 < len(m) && m[i+1] < 0x80 {
			i += 2 + int(m[i+1])
		} else if _, i = readDelimited(m, i+1); i < 0 {
			return errMalformed
		}
	}
	if i > len(m) {
		return errMalformed
	}
	alias, rest := m[:i], m[i:]
	if len(rest) > 2 && rest[0] == v1Samples<<3|wireBytes && int(rest[1]) == len(rest)-2 && rest[1] < 0x80 {
		// Fast path: one sample and nothing else, as Prometheus sends.
		if err := d.resolveSeries(alias); err != nil {
			return err
		}
		return d.decodeSampleV1(rest[2:])
	}
	found, ok := scanV1(rest)
	if !ok {
		return errMalformed
	}
	if found.hasLabels {
		// There are more labels after other fields: join all labels, and search the whole message for samples.
		alias, rest = d.gatherV1(m), m
	}
	if !found.hasSamples && !found.hasExemplars {
		if d.parseLabels(alias) < 0 {
			return errMalformed
		}
	} else if err := d.resolveSeries(alias); err != nil {
		return err
	}
	return d.decodeSamplesV1(rest)
}

// foundV1 holds the kinds of fields found in a series.
type foundV1 struct{ hasLabels, hasSamples, hasExemplars bool }

// scanV1 checks the wire format of a prometheus.TimeSeries without the content of its fields.
func scanV1(m []byte) (found foundV1, ok bool) {
	for i := 0; i < len(m); {
		number, wire, next := readTag(m, i)
		if next < 0 {
			return found, false
		}
		if number > v1Histograms {
			i = skipField(m, next, wire)
		} else if wire == wireBytes {
			_, i = readDelimited(m, next)
		} else {
			return found, false
		}
		if i < 0 {
			return found, false
		}
		found.hasLabels = found.hasLabels || number == v1Labels
		found.hasSamples = found.hasSamples || number == v1Samples || number == v1Histograms
		found.hasExemplars = found.hasExemplars || number == v1Exemplars
	}
	return found, true
}

// gatherV1 returns the label fields of a scanned prometheus.TimeSeries, joined.
func (d *decoder) gatherV1(m []byte) []byte {
	d.built = d.built[:0]
	for i := 0; i < len(m); {
		number, wire, next := readTag(m, i)
		next = skipField(m, next, wire)
		if number == v1Labels {
			d.built = append(d.built, m[i:next]...)
		}
		i = next
	}
	return d.built
}

// decodeSamplesV1 decodes the samples, histograms and exemplars of a scanned prometheus.TimeSeries.
func (d *decoder) decodeSamplesV1(m []byte) error {
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
		case v1Samples:
			err = d.decodeSampleV1(field)
		case v1Histograms:
			err = d.decodeHistogramV1(field)
		case v1Exemplars:
			err = d.decodeExemplarV1(field)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeSampleV1 decodes a prometheus.Sample.
func (d *decoder) decodeSampleV1(b []byte) error {
	t, _, v, ok := parseSample(b, false)
	if !ok {
		return errMalformed
	}
	return d.float(t, 0, v)
}

// decodeMetadataV1 decodes a prometheus.MetricMetadata.
func (d *decoder) decodeMetadataV1(b []byte) error {
	var m Metadata
	var typ uint64
	for i := 0; i < len(b); {
		number, wire, next := readTag(b, i)
		if next < 0 {
			return errMalformed
		}
		switch {
		case number == 1 && wire == wireVarint:
			typ, i = readUvarint(b, next)
		case number == 2 && wire == wireBytes:
			m.Metric, i = readDelimited(b, next)
		case number == 4 && wire == wireBytes:
			m.Help, i = readDelimited(b, next)
		case number == 5 && wire == wireBytes:
			m.Unit, i = readDelimited(b, next)
		case number == 1, number == 2, number == 4, number == 5:
			return errMalformed
		default:
			i = skipField(b, next, wire)
		}
		if i < 0 {
			return errMalformed
		}
	}
	m.Type = metricType(uint32(typ))
	d.passMetadata(m)
	return nil
}

// passMetadata calls onMetadata if m names a metric and is valid UTF-8.
func (d *decoder) passMetadata(m Metadata) {
	if d.onMetadata == nil || len(m.Metric) == 0 || !utf8.Valid(m.Metric) || !utf8.Valid(m.Unit) ||
		!utf8.Valid(m.Help) {
		return
	}
	d.onMetadata(d.ctx, d.tenant, m)
}
