package s3

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
	"github.com/cassia-db/cassia/storage/pebble/objects"
)

// requestKinds contains one request of each kind. A request that returns no error must have had its complete effect.
var requestKinds = map[string]struct {
	is   func(*http.Request) bool
	make func(*testing.T, *Bucket) (any, error)
	// whole returns the result that make has with a server without faults.
	whole func(*testing.T, *Bucket) (any, error)
}{
	"LIST": {
		func(r *http.Request) bool { return r.URL.Query().Get("list-type") == "2" },
		namesOf, namesOf,
	},
	"GET": {
		func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/files/a")
		},
		func(t *testing.T, b *Bucket) (any, error) { return get(t, b, "files/a") },
		func(t *testing.T, b *Bucket) (any, error) { return get(t, b, "files/a") },
	},
	"PUT": {
		func(r *http.Request) bool { return r.Method == http.MethodPut },
		func(t *testing.T, b *Bucket) (any, error) {
			return randomContent(1000), put(t, b, "files/new", randomContent(1000))
		},
		func(t *testing.T, b *Bucket) (any, error) { return get(t, b, "files/new") },
	},
	"PUT of parts": {
		func(r *http.Request) bool { return r.Method == http.MethodPut },
		putParts, getParts,
	},
	"begin of parts": {
		func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploads") },
		putParts, getParts,
	},
	"end of parts": {
		func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") },
		putParts, getParts,
	},
	"LIST of uploads": {
		func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("uploads") },
		func(t *testing.T, b *Bucket) (any, error) { return nil, b.AbortAbandoned(t.Context(), time.Now()) },
		func(*testing.T, *Bucket) (any, error) { return nil, nil },
	},
}

func namesOf(t *testing.T, b *Bucket) (any, error) {
	found, err := b.List(t.Context(), "files/")
	names := map[string]int64{}
	for _, o := range found {
		names[o.Name] = o.Size
	}
	return names, err
}

func putParts(t *testing.T, b *Bucket) (any, error) {
	return randomContent(partBytes + 1), put(t, b, "files/parts", randomContent(partBytes+1))
}

func getParts(t *testing.T, b *Bucket) (any, error) { return get(t, b, "files/parts") }

// TestAnswersThatAreNotS3s responds to each kind of request with each kind of invalid response, at every attempt. The
// request must return an error or the correct result.
func TestAnswersThatAreNotS3s(t *testing.T) {
	needsServer(t)
	faults := map[string]s3test.Fault{
		"a page": s3test.HTMLPage, "a page that is XML": s3test.PageXML, "404 with a page": s3test.MissingPage,
		"an error with 200": s3test.ErrorBody, "nothing": s3test.EmptyBody, "a redirect": s3test.Redirect,
		"half the body": s3test.HalfBody, "404": s3test.Missing,
	}
	server := s3test.Start(t)
	for about, request := range requestKinds {
		for how, fault := range faults {
			t.Run(about+" "+how, func(t *testing.T) {
				t.Parallel()
				prefix := fmt.Sprintf("%x", []byte(t.Name()))[:60] + fmt.Sprint(len(t.Name()), fault)
				var broken atomic.Int64
				proxy := s3test.NewProxy(t, server.Address, func(_ int, r *http.Request) s3test.Fault {
					if !request.is(r) {
						return s3test.NoFault
					}
					broken.Add(1)
					return fault
				})
				direct := openBucket(t, s3test.At(server.Address, prefix))
				b := openBucket(t, s3test.At(proxy.Address, prefix))
				require.NoError(t, put(t, direct, "files/a", randomContent(3000)))
				require.NoError(t, put(t, direct, "files/b", nil))
				got, err := request.make(t, b)
				require.NotZero(t, broken.Load())
				if err != nil {
					notFound := errors.Is(err, objects.ErrNotFound)
					require.Equal(t, fault == s3test.Missing, notFound,
						"only S3's 404 means that there is none: %v", err)
					require.NotContains(t, err.Error(), "\n")
					return
				}
				if about == "GET" && fault == s3test.HalfBody {
					return // The response is plausible; readers of objects compare SHA-256 hashes.
				}
				want, err := request.whole(t, direct)
				require.NoError(t, err)
				require.Equal(t, want, got, "the wrong answer was accepted")
			})
		}
	}
}

// TestListings checks that incomplete or invalid pages aren't accepted as a complete listing.
func TestListings(t *testing.T) {
	t.Parallel()
	const key = "<Contents><Key>files/a</Key><Size>1</Size></Contents>"
	for text, want := range map[string]string{
		"<ListBucketResult><Name>b</Name>" + key + "</ListBucketResult>":                                                       "doesn't say whether it is truncated",
		"<ListBucketResult>" + key + "<IsTruncated>true</IsTruncated></ListBucketResult>":                                      "has no continuation token",
		"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>": "leads to the same page",
		"<ListBucketResult>" + key + key + "<IsTruncated>false</IsTruncated></ListBucketResult>":                               "which has another prefix or is already listed",
		"<ListBucketResult><Contents><Key>else/a</Key></Contents><IsTruncated>false</IsTruncated></ListBucketResult>":          "which has another prefix or is already listed",
		"<ListVersionsResult><IsTruncated>false</IsTruncated></ListVersionsResult>":                                            "<ListVersionsResult> instead of <ListBucketResult>",
		"{\"error\":\"none\"}": "contains no XML",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(text))
		}))
		_, err := openBucket(t, s3test.At(server.Listener.Addr().String(), "")).List(t.Context(), "files/")
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "check that the endpoint is an S3 server")
		server.Close()
	}
}

// TestRangeThatIsIgnored checks that a download fails if it is interrupted and the server then returns the whole object
// instead of the requested rest.
func TestRangeThatIsIgnored(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
		w.Header().Set("Content-Length", "2000")
		_, _ = w.Write(randomContent(1000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	_, err := get(t, openBucket(t, s3test.At(server.Listener.Addr().String(), "")), "files/a")
	require.ErrorContains(t, err, "not a valid S3 response")
	require.NotContains(t, err.Error(), "\n")
}
