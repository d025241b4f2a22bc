package remotewrite

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// version is a protocol.
type version int

const (
	versionUnknown version = iota
	version1
	version2
)

// String names the version in metrics.
func (v version) String() string { return [...]string{"unknown", "1.0", "2.0"}[v] }

// The messages that the parameter proto of a content type names.
const (
	mediaType = "application/x-protobuf"
	messageV1 = "prometheus.WriteRequest"
	messageV2 = "io.prometheus.write.v2.Request"
)

// The body of one version has none of the fields of the other: decoded by the other, it is a message of nothing, which would be acknowledged.
var (
	errBodyOfV1 = errors.New("the body is a message of remote write 1.0, but the content type is for 2.0; send it with proto=" + messageV1)
	errBodyOfV2 = errors.New("the body is a message of remote write 2.0, but the content type is for 1.0; send it with proto=" + messageV2)
)

// negotiate returns the protocol of a request by its headers. Without a content type, or without the
// parameter proto, it is 1.0, and without an encoding it is snappy all the same, as for Prometheus' receiver.
// An error means 415.
func negotiate(header http.Header) (version, error) {
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "snappy") {
		return versionUnknown, fmt.Errorf("content encoding %.64q isn't supported; send snappy (block format)", encoding)
	}
	switch contentType := header.Get("Content-Type"); contentType {
	case "", mediaType, mediaType + ";proto=" + messageV1:
		return version1, nil
	case mediaType + ";proto=" + messageV2:
		return version2, nil
	default:
		return parseContentType(contentType)
	}
}

// parseContentType takes the spellings that RFC 9110 allows besides: case, spaces, quotes, other parameters.
func parseContentType(contentType string) (version, error) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != mediaType {
		return versionUnknown, fmt.Errorf("content type %.128q isn't supported; send %s;proto=%s", contentType, mediaType, messageV2)
	}
	switch message, named := params["proto"]; {
	case !named || message == messageV1:
		return version1, nil
	case message == messageV2:
		return version2, nil
	default:
		return versionUnknown, fmt.Errorf("message %.128q isn't supported; send %s or %s", message, messageV2, messageV1)
	}
}
