package s3

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
)

// eachKind sends a request of each kind.
func eachKind(t *testing.T, b *Bucket, check func(err error)) {
	check(list(t, b))
	check(put(t, b, "files/a", []byte("x")))
	check(put(t, b, "files/a", randomContent(partBytes+1)))
	_, err := get(t, b, "files/a")
	check(err)
	check(b.Delete(t.Context(), "files/a"))
}

// TestLastingErrorsEndAtOnce checks connection errors that a retry can't fix. Each request must be sent once, and the
// error must name the remedy.
func TestLastingErrorsEndAtOnce(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	count := func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	plain := httptest.NewUnstartedServer(http.NotFoundHandler())
	for _, s := range []*httptest.Server{secure, plain} {
		s.Config.ConnState, s.Config.ErrorLog = count, log.New(io.Discard, "", 0)
		t.Cleanup(s.Close)
	}
	secure.StartTLS()
	plain.Start()
	at := func(s *httptest.Server) string { return s3test.At(s.Listener.Addr().String(), "") }
	for url, want := range map[string]string{
		strings.Replace(at(secure), "http:", "https:", 1): "certificate signed by unknown authority; add the CA certificate of the server as ca-file in the URL",
		strings.Replace(at(plain), "http:", "https:", 1):  "the server doesn't use TLS on this port: correct the port, or use http:// instead of https://",
	} {
		eachKind(t, openBucket(t, url), func(err error) {
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "attempts")
			require.EqualValues(t, 1, connections.Swap(0))
		})
	}
	require.ErrorContains(t, list(t, openBucket(t, at(secure))), "write https:// instead of http://")
	require.EqualValues(t, 1, connections.Swap(0))
}

// TestRefusalsEndAtOnce checks that requests for a missing bucket, or with wrong credentials, are sent once.
func TestRefusalsEndAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an S3 server: leave -short out")
	}
	server := s3test.Start(t)
	proxy := s3test.NewProxy(t, server.Address, func(int, *http.Request) s3test.Fault { return s3test.NoFault })
	seen := 0
	once := func(want string) func(error) {
		return func(err error) {
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "attempts")
			require.Equal(t, 1, proxy.RequestCount()-seen)
			seen = proxy.RequestCount()
		}
	}
	eachKind(t, openBucket(t, "s3://nothing/x?endpoint=http://"+proxy.Address),
		once("the bucket doesn't exist; create it, or correct the URL"))
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
	eachKind(t, openBucket(t, s3test.At(proxy.Address, "")),
		once("access denied; the credentials need permission to list, read, write and delete below the prefix"))
}
