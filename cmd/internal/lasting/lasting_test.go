package lasting

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConnections checks which connection errors are recognized as lasting, and which remedies they name.
func TestConnections(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	ended, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ended.Close() })
	go func() {
		for {
			c, err := ended.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	trusting := x509.NewCertPool()
	trusting.AddCert(secure.Certificate())
	for name, c := range map[string]struct {
		url, server string
		trusts      *x509.CertPool
		now         time.Time
		want        string // "": a retry may succeed
	}{
		"authority":  {url: secure.URL, want: "certificate signed by unknown authority; add the CA certificate of the server as ca_file"},
		"other name": {url: secure.URL, trusts: trusting, server: "other.test", want: "; correct the host in the URL"},
		"expired":    {url: secure.URL, trusts: trusting, now: time.Now().AddDate(200, 0, 0), want: "; renew the certificate of the server"},
		"no TLS":     {url: strings.Replace(plain.URL, "http:", "https:", 1), want: "; the server doesn't use TLS on this port"},
		"nobody":     {url: "http://" + gone.Addr().String()},
		"cut":        {url: "http://" + ended.Addr().String()},
		"cut, TLS":   {url: "https://" + ended.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			next := &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: c.trusts, ServerName: c.server, MinVersion: tls.VersionTLS12},
			}
			if !c.now.IsZero() {
				next.TLSClientConfig.Time = func() time.Time { return c.now }
			}
			t.Cleanup(next.CloseIdleConnections)
			_, err := (&http.Client{Transport: NewTransport(next, "ca_file")}).Get(c.url)
			require.Error(t, err)
			var lasting *Error
			require.Equal(t, c.want != "", errors.As(err, &lasting), "%v", err)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Same(t, lasting, ErrorOf(err, "another"))
			}
		})
	}
	require.Nil(t, ErrorOf(nil, ""))
	// A machine without a name server returns a different error.
	require.ErrorContains(
		t, ErrorOf(&net.OpError{
			Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true},
		}, ""),
		"; correct the host in the URL",
	)
	require.Nil(t, ErrorOf(&net.DNSError{Err: "server misbehaving", Name: "nowhere", IsTemporary: true}, ""))
}
