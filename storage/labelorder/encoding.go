package labelorder

import (
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
)

// longString is the first byte of the size of a string of at least 255 bytes. Three more bytes follow, little-endian.
const longString = 255

// Encoding returns the encoding of labels, which is the only field of labels.Labels: the names and values in their
// order, each preceded by its size. A size takes one byte, or four (see longString).
func Encoding(ls labels.Labels) string { return *(*string)(unsafe.Pointer(&ls)) }

// Decode is the inverse of Encoding.
func Decode(encoding string) labels.Labels { return *(*labels.Labels)(unsafe.Pointer(&encoding)) }

// labels.Labels has other fields in builds with the tags slicelabels or dedupelabels. This declaration makes such
// builds fail to compile.
var (
	_ [unsafe.Sizeof(labels.Labels{}) - unsafe.Sizeof("")]struct{}
	_ [unsafe.Sizeof("") - unsafe.Sizeof(labels.Labels{})]struct{}
)
