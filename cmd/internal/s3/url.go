// Package s3 accesses buckets with Amazon's S3 protocol, for backups. It implements objects.Bucket. Package backups
// uses it. The URL of a bucket is
//
//	s3://BUCKET/PREFIX?endpoint=https://minio.example.org:9000&region=eu-central-1&path-style=true&ca-file=/etc/ca.pem
//
// Credentials and missing parameters are read from the same sources as in Amazon's tools: the environment
// (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL and so on), the files ~/.aws/credentials and
// ~/.aws/config, and the role of a container or machine.
package s3

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// scheme is the scheme of a bucket's URL.
const scheme = "s3://"

// IsURL reports whether a location is the URL of a bucket rather than a folder.
func IsURL(place string) bool { return strings.HasPrefix(place, scheme) }

// Name returns the name of a bucket for display: its URL without parameters.
func Name(text string) string {
	l, err := parse(text)
	if err != nil {
		return scheme + "…"
	}
	return l.String()
}

// String returns the URL without parameters.
func (l bucketURL) String() string {
	return strings.TrimSuffix(scheme+l.bucket+"/"+l.prefix, "/")
}

// bucketURL holds the parts of a URL.
type bucketURL struct {
	bucket, prefix   string // prefix ends with "/", unless it is empty
	endpoint, region string
	usesPathStyle    bool
	caFile           string
}

// errSecret is returned for URLs that contain credentials. They are rejected because the list of processes would show
// them to other users of the machine.
var errSecret = errors.New(
	"must not contain credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or " +
		"AWS_PROFILE with ~/.aws/credentials",
)

// parse parses a URL. Its errors don't contain the URL, because the URL may contain a secret.
func parse(text string) (l bucketURL, err error) {
	wrong := func(format string, args ...any) (bucketURL, error) {
		return bucketURL{}, fmt.Errorf("the URL "+format, args...)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme+"://" != scheme || u.Host == "" || u.Fragment != "" {
		return wrong("must be like s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION")
	}
	if u.User != nil {
		return wrong("%w", errSecret)
	}
	l = bucketURL{bucket: u.Host, prefix: strings.Trim(path.Clean("/"+u.Path), "/"), endpoint: endpointOfEnvironment()}
	if l.prefix != "" {
		l.prefix += "/"
	}
	if err := s3utils.CheckValidBucketNameStrict(l.bucket); err != nil {
		return wrong(
			"names the bucket %s: a name must have 3 to 63 characters, lower-case letters, digits, dots and hyphens",
			l.bucket,
		)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return wrong("has invalid parameters")
	}
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "endpoint":
			l.endpoint = value
		case "region":
			l.region = value
		case "ca-file":
			l.caFile = value
		case "path-style":
			if l.usesPathStyle, err = strconv.ParseBool(value); err != nil {
				return wrong("has path-style=%s: must be true or false", value)
			}
		case "access-key", "secret-key", "access_key", "secret_key":
			return wrong("%w", errSecret)
		default:
			return wrong("has the unknown parameter %q; the parameters are endpoint, region, path-style and ca-file",
				name)
		}
	}
	if l.endpoint == "" {
		return l, nil
	}
	e, err := url.Parse(l.endpoint)
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" ||
		strings.Trim(e.Path, "/") != "" || e.User != nil {
		return wrong("has an endpoint that isn't like https://HOST:PORT")
	}
	return l, nil
}

func endpointOfEnvironment() string {
	if e := os.Getenv("AWS_ENDPOINT_URL_S3"); e != "" {
		return e
	}
	return os.Getenv("AWS_ENDPOINT_URL")
}
