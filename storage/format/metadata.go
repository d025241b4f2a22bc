package format

import (
	"errors"
	"fmt"
)

// Metadata is a metric's type, unit and help.
type Metadata struct {
	// Type is a name such as counter. Unit and Help may be empty.
	Type, Unit, Help string
}

const metadataVersion = 1

// errMalformedMetadata is returned for invalid metadata.
var errMalformedMetadata = errors.New("format: malformed metadata")

// AppendMetadata appends the value of a row of metadata:
//
//	+---------+----------+------+----------+------+----------+------+
//	| version | type len | type | unit len | unit | help len | help |
//	| 1 byte  | uvarint  |      | uvarint  |      | uvarint  |      |
//	+---------+----------+------+----------+------+----------+------+
func AppendMetadata(dst []byte, m Metadata) []byte {
	dst = append(dst, metadataVersion)
	for _, text := range []string{m.Type, m.Unit, m.Help} {
		dst = AppendString(dst, text)
	}
	return dst
}

// ParseMetadata is the inverse of AppendMetadata.
func ParseMetadata(b []byte) (m Metadata, err error) {
	if len(b) == 0 || b[0] != metadataVersion {
		return m, fmt.Errorf("%w: unknown version", errMalformedMetadata)
	}
	b = b[1:]
	for _, field := range []*string{&m.Type, &m.Unit, &m.Help} {
		var text []byte
		if text, b, err = CutString(b); err != nil {
			return m, fmt.Errorf("%w: truncated", errMalformedMetadata)
		}
		*field = string(text)
	}
	return m, nil
}
