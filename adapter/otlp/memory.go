package otlp

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxNesting bounds the nesting of attribute values, and of brackets in JSON. The messages of OpenTelemetry's SDKs are
// nested far less. Decoders are recursive: deeper nesting could overflow the stack.
const maxNesting = 64

// Estimated memory in bytes per element of a decoded message, in addition to the element's own bytes: structs, slices
// of pointers to structs, which double when they grow, and the translation's copies.
const (
	elementBytes = 512
	numberBytes  = 16
)

// messageFields describes the fields of a protobuf message that take more memory than bytes on the wire: fields that
// hold messages, and fields that hold packed numbers.
type messageFields struct {
	messages map[protowire.Number]*messageFields
	numbers  map[protowire.Number]bool
}

// exportRequest describes opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest.
var exportRequest = describeExportRequest()

func describeExportRequest() *messageFields {
	of := func(fields map[protowire.Number]*messageFields) *messageFields {
		return &messageFields{messages: fields}
	}
	value := of(nil)
	attribute := of(map[protowire.Number]*messageFields{2: value})
	value.messages = map[protowire.Number]*messageFields{
		5: of(map[protowire.Number]*messageFields{1: value}), 6: of(map[protowire.Number]*messageFields{1: attribute}),
	}
	exemplar := of(map[protowire.Number]*messageFields{7: attribute})
	number := of(map[protowire.Number]*messageFields{7: attribute, 5: exemplar})
	numbers := of(map[protowire.Number]*messageFields{1: number})
	histogram := of(map[protowire.Number]*messageFields{9: attribute, 8: exemplar})
	buckets := &messageFields{numbers: map[protowire.Number]bool{2: true}}
	exponential := of(map[protowire.Number]*messageFields{1: attribute, 11: exemplar, 8: buckets, 9: buckets})
	summary := of(map[protowire.Number]*messageFields{7: attribute, 6: of(nil)})
	metric := of(map[protowire.Number]*messageFields{
		5: numbers, 7: numbers, 12: attribute,
		9:  of(map[protowire.Number]*messageFields{1: histogram}),
		10: of(map[protowire.Number]*messageFields{1: exponential}),
		11: of(map[protowire.Number]*messageFields{1: summary}),
	})
	scope := of(map[protowire.Number]*messageFields{3: attribute})
	resource := of(map[protowire.Number]*messageFields{1: attribute, 3: of(nil)})
	return of(map[protowire.Number]*messageFields{
		1: of(map[protowire.Number]*messageFields{
			1: resource,
			2: of(map[protowire.Number]*messageFields{1: scope, 2: metric}),
		}),
	})
}

// estimateMemory estimates the memory of a decoded body in bytes. It stops once the estimate exceeds limit, and returns
// an error if the nesting is too deep.
func (e encoding) estimateMemory(body []byte, limit int64) (int64, error) {
	if e == encodingProtobuf {
		return exportRequest.estimateMemory(body, limit, 0)
	}
	return estimateJSONMemory(body, limit)
}

func (m *messageFields) estimateMemory(b []byte, limit int64, depth int) (int64, error) {
	total := int64(elementBytes)
	if depth > maxNesting {
		return 0, fmt.Errorf("%w: messages are nested more than %d levels deep", errMalformed, maxNesting)
	}
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		b = b[n:]
		if wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
				return 0, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
			}
			b = b[n:]
			total += numberBytes
			continue
		}
		field, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return 0, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		b = b[n:]
		switch inner := m.messages[number]; {
		case inner != nil:
			weight, err := inner.estimateMemory(field, limit-total, depth+1)
			if err != nil {
				return 0, err
			}
			total += weight
		case m.numbers[number]:
			total += numberBytes * int64(len(field))
		default:
			total += 2 * int64(len(field))
		}
		if total > limit {
			return total, nil
		}
	}
	return total, nil
}

// estimateJSONMemory estimates the memory of a decoded JSON body from its length and from its brackets and commas
// outside of strings.
func estimateJSONMemory(body []byte, limit int64) (int64, error) {
	total, depth, text := 2*int64(len(body)), 0, false
	for i := 0; i < len(body) && total <= limit; i++ {
		switch c := body[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{', c == '[':
			total += elementBytes
			if depth++; depth > maxNesting {
				return 0, fmt.Errorf("%w: brackets are nested more than %d levels deep", errMalformed, maxNesting)
			}
		case c == '}', c == ']':
			depth--
		case c == ',':
			total += numberBytes
		}
	}
	return total, nil
}
