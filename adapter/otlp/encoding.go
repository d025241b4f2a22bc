package otlp

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/protobuf/encoding/protowire"
)

// encoding is the encoding of a body. A response has the encoding of its request.
type encoding int

const (
	encodingJSON encoding = iota
	encodingProtobuf
)

// String returns the encoding's name in metrics.
func (e encoding) String() string { return [...]string{"json", "protobuf"}[e] }

func (e encoding) mediaType() string {
	return [...]string{"application/json", "application/x-protobuf"}[e]
}

// negotiateEncoding returns the encoding of the body and whether it is compressed. An error means 415; the error
// response is JSON if the request's encoding is unknown.
func negotiateEncoding(header http.Header) (e encoding, gzipped bool, err error) {
	contentType := header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && media == encodingJSON.mediaType():
		e = encodingJSON
	case err == nil && media == encodingProtobuf.mediaType():
		e = encodingProtobuf
	default:
		return encodingJSON, false, fmt.Errorf(
			"content type %.128q isn't supported; send application/x-protobuf or application/json", contentType,
		)
	}
	switch of := strings.ToLower(strings.TrimSpace(header.Get("Content-Encoding"))); of {
	case "", "identity":
		return e, false, nil
	case "gzip":
		return e, true, nil
	default:
		return e, false, fmt.Errorf("content encoding %.64q isn't supported; send gzip or no encoding", of)
	}
}

// decode decodes a body. The caller must have checked its estimated memory with estimateMemory.
func (e encoding) decode(body []byte) (pmetricotlp.ExportRequest, error) {
	req := pmetricotlp.NewExportRequest()
	if e == encodingProtobuf {
		return req, req.UnmarshalProto(body)
	}
	return req, req.UnmarshalJSON(body)
}

// encodeSuccess encodes an ExportMetricsServiceResponse. It has a partial success if rejected > 0 or message isn't
// empty.
func (e encoding) encodeSuccess(rejected int, message string) ([]byte, error) {
	response := pmetricotlp.NewExportResponse()
	if rejected > 0 || message != "" {
		response.PartialSuccess().SetRejectedDataPoints(int64(rejected))
		response.PartialSuccess().SetErrorMessage(message)
	}
	if e == encodingProtobuf {
		return response.MarshalProto()
	}
	return response.MarshalJSON()
}

// Codes of google.rpc.Code.
const (
	rpcInvalidArgument   = 3
	rpcResourceExhausted = 8
	rpcUnimplemented     = 12
	rpcInternal          = 13
	rpcUnavailable       = 14
)

// rpcCode returns the google.rpc.Code for an HTTP status.
func rpcCode(status int) int {
	switch status {
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return rpcResourceExhausted
	case http.StatusMethodNotAllowed:
		return rpcUnimplemented
	case http.StatusServiceUnavailable:
		return rpcUnavailable
	case http.StatusInternalServerError:
		return rpcInternal
	}
	return rpcInvalidArgument
}

// encodeFailure encodes a google.rpc.Status: its code is field 1, its message field 2.
func (e encoding) encodeFailure(status int, message string) ([]byte, error) {
	message = strings.ToValidUTF8(message, "\uFFFD")
	if e == encodingJSON {
		return json.Marshal(struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}{rpcCode(status), message})
	}
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(rpcCode(status)))
	return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), message), nil
}
