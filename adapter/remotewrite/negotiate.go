package remotewrite

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// version is a protocol version.
type version int

const (
	versionUnknown version = iota
	version1
	version2
)

// String returns the version's name in metrics.
func (v version) String() string { return [...]string{"unknown", "1.0", "2.0"}[v] }

// Values of the parameter proto of a content type.
const (
	mediaType = "application/x-protobuf"
	messageV1 = "prometheus.WriteRequest"
	messageV2 = "io.prometheus.write.v2.Request"
)

// Each version treats the fields of the other version as unknown. A body of the wrong version would decode as an empty
// message and be acknowledged, hence these errors.
var (
	errBodyOfV1 = errors.New(
		"the body is a message of remote write 1.0, but the content type is for 2.0; send it with proto=" + messageV1,
	)
	errBodyOfV2 = errors.New(
		"the body is a message of remote write 2.0, but the content type is for 1.0; send it with proto=" + messageV2,
	)
)

// negotiateVersion returns the protocol version from a request's headers. As in Prometheus' receiver, a missing content
// type or proto parameter means 1.0, and a missing encoding means snappy. An error means 415.
func negotiateVersion(header http.Header) (version, error) {
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "snappy") {
		return versionUnknown, fmt.Errorf("content encoding %.64q isn't supported; send snappy (block format)",
			encoding)
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

// parseContentType accepts all spellings that RFC 9110 allows: case, spaces, quotes, other parameters.
func parseContentType(contentType string) (version, error) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != mediaType {
		return versionUnknown, fmt.Errorf("content type %.128q isn't supported; send %s;proto=%s",
			contentType, mediaType, messageV2)
	}
	switch message, named := params["proto"]; {
	case !named || message == messageV1:
		return version1, nil
	case message == messageV2:
		return version2, nil
	default:
		return versionUnknown, fmt.Errorf("message %.128q isn't supported; send %s or %s",
			message, messageV2, messageV1)
	}
}
