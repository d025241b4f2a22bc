package remotewrite

import (
	"bytes"
	"errors"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Bounds of one series' labels, checked before the labels are built in memory. The store's own limits are lower.
const (
	maxAliasBytes = 1 << 20
	maxLabels     = 4096
)

const (
	tagLabels = 1<<3 | wireBytes // prometheus.TimeSeries.labels
	tagName   = 1<<3 | wireBytes // prometheus.Label.name
	tagValue  = 2<<3 | wireBytes // prometheus.Label.value
)

// appendLabel appends a label as prometheus.TimeSeries encodes it, which is also its encoding in an alias:
//
//	+------+-----+------+----------+------+------+-----------+-------+
//	| 0x0a | len | 0x0a | name len | name | 0x12 | value len | value |
//	+------+-----+------+----------+------+------+-----------+-------+
//
// An empty name or value has no field.
func appendLabel(dst []byte, name, value string) []byte {
	if size := 6 + len(name) + len(value); size < 0x82 && len(name) > 0 && len(value) > 0 && cap(dst)-len(dst) >= size {
		// Fast path: all lengths take one byte and dst has capacity.
		at := len(dst)
		dst = dst[:at+size]
		field := dst[at:]
		field[0], field[1], field[2], field[3] = tagLabels, byte(size-2), tagName, byte(len(name))
		rest := field[4+copy(field[4:], name):]
		rest[0], rest[1] = tagValue, byte(len(value))
		copy(rest[2:], value)
		return dst
	}
	return appendAnyLabel(dst, name, value)
}

// appendAnyLabel is the general case of appendLabel.
func appendAnyLabel(dst []byte, name, value string) []byte {
	n := 0
	if len(name) > 0 {
		n += 1 + uvarintLen(len(name)) + len(name)
	}
	if len(value) > 0 {
		n += 1 + uvarintLen(len(value)) + len(value)
	}
	dst = appendUvarint(append(dst, tagLabels), uint64(n))
	if len(name) > 0 {
		dst = append(appendUvarint(append(dst, tagName), uint64(len(name))), name...)
	}
	if len(value) > 0 {
		dst = append(appendUvarint(append(dst, tagValue), uint64(len(value))), value...)
	}
	return dst
}

// parseLabel parses a prometheus.Label. ok is false if it is malformed. If a field is repeated, the last one counts.
func parseLabel(b []byte) (name, value []byte, ok bool) {
	for i := 0; i < len(b); {
		number, wire, next := readTag(b, i)
		if next < 0 {
			return nil, nil, false
		}
		switch {
		case number > 2:
			next = skipField(b, next, wire)
		case wire != wireBytes:
			return nil, nil, false
		case number == 1:
			name, next = readDelimited(b, next)
		default:
			value, next = readDelimited(b, next)
		}
		if i = next; i < 0 {
			return nil, nil, false
		}
	}
	return name, value, true
}

// parseLabels parses the labels of an alias into d.builder, unsorted. It returns the number of labels, or malformed.
// Labels beyond maxLabels are checked and counted but not added.
func (d *decoder) parseLabels(alias []byte) (count int) {
	d.builder.Reset()
	for i := 0; i < len(alias); count++ {
		_, wire, next := readTag(alias, i)
		if next < 0 || wire != wireBytes {
			return malformedPos
		}
		var field []byte
		if field, i = readDelimited(alias, next); i < 0 {
			return malformedPos
		}
		name, value, ok := parseLabel(field)
		if !ok {
			return malformedPos
		}
		if count < maxLabels {
			d.builder.Add(unsafeString(name), unsafeString(value))
		}
	}
	return count
}

// resolveSeries finds or creates the series with the given alias. It sets d.series, or if the series is rejected, sets
// it to nil and records the reason.
func (d *decoder) resolveSeries(alias []byte) error {
	d.alias = alias
	if d.batch == nil {
		d.batch = d.newBatch(d.tenant)
	}
	if series, ok := d.batch.Lookup(alias); ok {
		d.series = series
		return nil
	}
	d.series = nil
	count := d.parseLabels(alias)
	if count < 0 {
		return errMalformed
	}
	if count > maxLabels || len(alias) > maxAliasBytes {
		d.rejectSeries(storage.ReasonTooManyLabels, errTooManyLabels)
		return nil
	}
	d.builder.Sort()
	d.builder.Overwrite(&d.labels)
	return d.define(alias, d.labels)
}

// define finds or creates the series with the given sorted labels. The store keeps only the canonical alias of a
// series.
func (d *decoder) define(alias []byte, ls labels.Labels) error {
	d.canon = d.canon[:0]
	ls.Range(func(l labels.Label) {
		if l.Value != "" {
			d.canon = appendLabel(d.canon, l.Name, l.Value)
		}
	})
	canon := d.canon
	if !bytes.Equal(canon, alias) {
		// Labels with a duplicate name have no alias. Removing empty labels could hide the duplicate, and the canonical
		// alias would then find another series; Define rejects such labels.
		if _, twice := ls.HasDuplicateLabelNames(); twice {
			canon = nil
		} else if series, ok := d.batch.Lookup(canon); ok {
			d.series = series
			return nil
		}
	}
	series, err := d.batch.Define(canon, ls)
	var bad *storage.LabelError
	var limit *tenant.LimitError
	switch {
	case err == nil:
		d.series = series
	case errors.As(err, &bad):
		d.rejectSeries(bad.Reason, err)
	case errors.As(err, &limit):
		d.rejectSeries(limit.Limit, err)
	case errors.Is(err, storage.ErrTooManySeries):
		d.rejectSeries(adapter.ReasonTooManySeries, err)
	default:
		return err
	}
	return nil
}

// unsafeString returns b as a string without copying. b must not change while the string is used.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
