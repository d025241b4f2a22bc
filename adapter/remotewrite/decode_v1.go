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
		number, wire, next := tag(body, i)
		if next < 0 {
			return fmt.Errorf("%w: after %d series", errMalformed, n)
		}
		var err error
		switch {
		case (number == v2Symbols || number == v2Timeseries) && wire == wireBytes:
			return errBodyOfV2
		case number != v1Timeseries && number != v1Metadata:
			i = skip(body, next, wire)
		case wire != wireBytes:
			err = errMalformed
		default:
			var message []byte
			if message, i = delimited(body, next); i < 0 {
				break
			}
			if number == v1Metadata {
				err = d.metadataV1(message)
				break
			}
			err = d.seriesV1(message)
			n++
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

// seriesV1 decodes a prometheus.TimeSeries.
func (d *decoder) seriesV1(m []byte) error {
	// All known senders put the label fields first.
	i := 0
	for i < len(m) && m[i] == tagLabels {
		if i+1 < len(m) && m[i+1] < 0x80 {
			i += 2 + int(m[i+1])
		} else if _, i = delimited(m, i+1); i < 0 {
			return errMalformed
		}
	}
	if i > len(m) {
		return errMalformed
	}
	alias, rest := m[:i], m[i:]
	if len(rest) > 2 && rest[0] == v1Samples<<3|wireBytes && int(rest[1]) == len(rest)-2 && rest[1] < 0x80 {
		// Fast path: one sample and nothing else, as Prometheus sends.
		if err := d.resolve(alias); err != nil {
			return err
		}
		return d.sampleV1(rest[2:])
	}
	found, ok := scanV1(rest)
	if !ok {
		return errMalformed
	}
	if found.labels {
		// There are more labels after other fields: join all labels, and search the whole message for samples.
		alias, rest = d.gatherV1(m), m
	}
	if !found.samples && !found.exemplars {
		if d.parseLabels(alias) < 0 {
			return errMalformed
		}
	} else if err := d.resolve(alias); err != nil {
		return err
	}
	return d.samplesV1(rest)
}

// foundV1 holds the kinds of fields found in a series.
type foundV1 struct{ labels, samples, exemplars bool }

// scanV1 checks the wire format of a prometheus.TimeSeries without the content of its fields.
func scanV1(m []byte) (found foundV1, ok bool) {
	for i := 0; i < len(m); {
		number, wire, next := tag(m, i)
		if next < 0 {
			return found, false
		}
		if number > v1Histograms {
			i = skip(m, next, wire)
		} else if wire == wireBytes {
			_, i = delimited(m, next)
		} else {
			return found, false
		}
		if i < 0 {
			return found, false
		}
		found.labels = found.labels || number == v1Labels
		found.samples = found.samples || number == v1Samples || number == v1Histograms
		found.exemplars = found.exemplars || number == v1Exemplars
	}
	return found, true
}

// gatherV1 returns the label fields of a scanned prometheus.TimeSeries, joined.
func (d *decoder) gatherV1(m []byte) []byte {
	d.built = d.built[:0]
	for i := 0; i < len(m); {
		number, wire, next := tag(m, i)
		next = skip(m, next, wire)
		if number == v1Labels {
			d.built = append(d.built, m[i:next]...)
		}
		i = next
	}
	return d.built
}

// samplesV1 decodes the samples, histograms and exemplars of a scanned prometheus.TimeSeries.
func (d *decoder) samplesV1(m []byte) error {
	for i := 0; i < len(m); {
		number, wire, next := tag(m, i)
		if wire != wireBytes {
			i = skip(m, next, wire)
			continue
		}
		var field []byte
		field, i = delimited(m, next)
		var err error
		switch number {
		case v1Samples:
			err = d.sampleV1(field)
		case v1Histograms:
			err = d.histogramV1(field)
		case v1Exemplars:
			err = d.exemplarV1(field)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sampleV1 decodes a prometheus.Sample.
func (d *decoder) sampleV1(b []byte) error {
	t, _, v, ok := parseSample(b, false)
	if !ok {
		return errMalformed
	}
	return d.float(t, 0, v)
}

// metadataV1 decodes a prometheus.MetricMetadata.
func (d *decoder) metadataV1(b []byte) error {
	var m Metadata
	var typ uint64
	for i := 0; i < len(b); {
		number, wire, next := tag(b, i)
		if next < 0 {
			return errMalformed
		}
		switch {
		case number == 1 && wire == wireVarint:
			typ, i = uvarint(b, next)
		case number == 2 && wire == wireBytes:
			m.Metric, i = delimited(b, next)
		case number == 4 && wire == wireBytes:
			m.Help, i = delimited(b, next)
		case number == 5 && wire == wireBytes:
			m.Unit, i = delimited(b, next)
		case number == 1, number == 2, number == 4, number == 5:
			return errMalformed
		default:
			i = skip(b, next, wire)
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
