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

// Bounds of one series' labels before the store looks at them: labels over them are refused without being
// built up in memory. The store's own limits are lower.
const (
	maxAliasBytes = 1 << 20
	maxLabels     = 4096
)

const (
	tagLabels = 1<<3 | wireBytes // prometheus.TimeSeries.labels
	tagName   = 1<<3 | wireBytes // prometheus.Label.name
	tagValue  = 2<<3 | wireBytes // prometheus.Label.value
)

// appendLabel appends a label as prometheus.TimeSeries carries it, which is the form of an alias:
//
//	+------+-----+------+----------+------+------+-----------+-------+
//	| 0x0a | len | 0x0a | name len | name | 0x12 | value len | value |
//	+------+-----+------+----------+------+------+-----------+-------+
//
// An empty name or value has no field.
func appendLabel(dst []byte, name, value string) []byte {
	if size := 6 + len(name) + len(value); size < 0x82 && len(name) > 0 && len(value) > 0 && cap(dst)-len(dst) >= size {
		// All lengths have one byte, and there is room: nearly always so.
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

// appendAnyLabel is appendLabel for all that is unusual.
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

// parseLabel reads a prometheus.Label. ok is false when it is malformed. Of a repeated field the last counts.
func parseLabel(b []byte) (name, value []byte, ok bool) {
	for i := 0; i < len(b); {
		number, wire, next := tag(b, i)
		if next < 0 {
			return nil, nil, false
		}
		switch {
		case number > 2:
			next = skip(b, next, wire)
		case wire != wireBytes:
			return nil, nil, false
		case number == 1:
			name, next = delimited(b, next)
		default:
			value, next = delimited(b, next)
		}
		if i = next; i < 0 {
			return nil, nil, false
		}
	}
	return name, value, true
}

// parseLabels reads an alias into d.builder, unsorted; too many labels are checked and left out. It returns
// how many there are, malformed when they are none.
func (d *decoder) parseLabels(alias []byte) (count int) {
	d.builder.Reset()
	for i := 0; i < len(alias); count++ {
		_, wire, next := tag(alias, i)
		if next < 0 || wire != wireBytes {
			return malformed
		}
		var field []byte
		if field, i = delimited(alias, next); i < 0 {
			return malformed
		}
		name, value, ok := parseLabel(field)
		if !ok {
			return malformed
		}
		if count < maxLabels {
			d.builder.Add(yolo(name), yolo(value))
		}
	}
	return count
}

// resolve finds or creates the series that alias names, and keeps it for the samples to come: d.series, or
// nil and the reason why there is none.
func (d *decoder) resolve(alias []byte) error {
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
		d.refuse(storage.ReasonTooManyLabels, errTooManyLabels)
		return nil
	}
	d.builder.Sort()
	d.builder.Overwrite(&d.labels)
	return d.define(alias, d.labels)
}

// define finds or creates the series with these labels, which are sorted. Only one alias is remembered for a
// series: the canonical one.
func (d *decoder) define(alias []byte, ls labels.Labels) error {
	d.canon = d.canon[:0]
	ls.Range(func(l labels.Label) {
		if l.Value != "" {
			d.canon = appendLabel(d.canon, l.Name, l.Value)
		}
	})
	canon := d.canon
	if !bytes.Equal(canon, alias) {
		// Labels that can't name a series never had an alias, but leaving out empty ones may have mended
		// them: only the store may refuse them.
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
		d.refuse(bad.Reason, err)
	case errors.As(err, &limit):
		d.refuse(limit.Limit, err)
	case errors.Is(err, storage.ErrTooManySeries):
		d.refuse(adapter.ReasonTooManySeries, err)
	default:
		return err
	}
	return nil
}

// yolo is a string over bytes that stay as they are while the string is used.
func yolo(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
