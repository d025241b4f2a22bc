package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/auth"
	"github.com/cassia-db/cassia/cmd/internal/webconfig"
	"github.com/cassia-db/cassia/storage/tenant"
)

// testAuthority is a certificate authority for tests.
type testAuthority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T) testAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return testAuthority{key, certificate}
}

// signCertificate returns a certificate for a host name and for 127.0.0.1.
func (a testAuthority) signCertificate(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a testAuthority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// writeServerFiles writes the certificate and the key that web.yml refers to.
func writeServerFiles(t *testing.T, dir string, own tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalECPrivateKey(own.PrivateKey.(*ecdsa.PrivateKey))
	require.NoError(t, err)
	writePEM(t, filepath.Join(dir, "server.crt"), "CERTIFICATE", own.Certificate[0])
	writePEM(t, filepath.Join(dir, "server.key"), "EC PRIVATE KEY", key)
}

// writeWebConfig writes web.yml and the files that it refers to. clientAuth is the policy for client certificates.
func writeWebConfig(t *testing.T, dir string, servers, clients testAuthority, clientAuth string) (file string) {
	t.Helper()
	writeServerFiles(t, dir, servers.signCertificate(t, "cassia.example.org"))
	text := "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
	if clientAuth != "" {
		writePEM(t, filepath.Join(dir, "clients.crt"), "CERTIFICATE", clients.certificate.Raw)
		text += "  client_ca_file: clients.crt\n  client_auth_type: " + clientAuth + "\n"
	}
	file = filepath.Join(dir, "web.yml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// secureServer serves h with TLS. clientAuth is the policy for client certificates.
func secureServer(t *testing.T, servers, clients testAuthority, clientAuth string, h http.Handler) string {
	t.Helper()
	web, err := webconfig.Open(writeWebConfig(t, t.TempDir(), servers, clients, clientAuth), false)
	require.NoError(t, err)
	return serveSecurely(t, web, h)
}

// serveSecurely starts a server that runs until the test ends. It returns the address.
func serveSecurely(t *testing.T, web *webconfig.File, h http.Handler) string {
	t.Helper()
	s, err := Listen([]string{"127.0.0.1:0"}, web, "", h, noMetrics(), quietLogger)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-served) })
	return s.Addresses()[0]
}

// requestTLS sends a request and returns the status and the body of the response.
func requestTLS(url string, trusted *x509.CertPool, own ...tls.Certificate) (string, error) {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: own}, ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d %s %s", answer.StatusCode, answer.Proto, body), err
}

func TestTLS(t *testing.T) {
	servers := newAuthority(t)
	address := secureServer(t, servers, servers, "", NewHandler(testOptions()))
	got, err := requestTLS("https://"+address+"/-/healthy", servers.pool())
	require.NoError(t, err)
	require.Equal(t, "200 HTTP/2.0 Cassia is healthy.\n", got)
	_, err = requestTLS("https://"+address+"/-/healthy", newAuthority(t).pool())
	require.ErrorContains(t, err, "unknown authority", "a client that trusts another authority doesn't talk to it")
	got, err = requestTLS("http://"+address+"/-/healthy", nil)
	require.NoError(t, err)
	require.Contains(t, got, "400 ", "nothing is answered without encryption")
}

func TestMutualTLS(t *testing.T) {
	servers, clients := newAuthority(t), newAuthority(t)
	address := secureServer(t, servers, clients, "RequireAndVerifyClientCert", NewHandler(testOptions()))
	url := "https://" + address + "/-/healthy"
	got, err := requestTLS(url, servers.pool(), clients.signCertificate(t, "somebody"))
	require.NoError(t, err)
	require.Equal(t, "200 HTTP/2.0 Cassia is healthy.\n", got)
	_, err = requestTLS(url, servers.pool())
	require.Error(t, err, "contains no PEM certificate")
	_, err = requestTLS(url, servers.pool(), servers.signCertificate(t, "somebody"))
	require.Error(t, err, "the wrong authority")
	own := newAuthority(t)
	_, err = requestTLS(url, servers.pool(), own.signCertificate(t, "somebody"))
	require.Error(t, err, "an unknown authority")
}

// TestCertificateOfAUser checks that a verified client certificate identifies its user, and that an unverified one is
// rejected in the handshake.
func TestCertificateOfAUser(t *testing.T) {
	servers, clients := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "auth.yml")
	require.NoError(t, os.WriteFile(
		file, []byte("users: [{name: bob, certificates: [bob.example.org], roles: [read], tenants: [a]}]"), 0o600,
	))
	guard, err := auth.Open(file)
	require.NoError(t, err)
	o := testOptions()
	o.Auth = guard
	o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := UserOf(r.Context())
		_, _ = io.WriteString(w, who.Name()+" of "+tenant.FromContext(r.Context()))
	})
	address := secureServer(t, servers, clients, "VerifyClientCertIfGiven", NewHandler(o))
	url := "https://" + address + "/api/v1/query"
	got, err := requestTLS(url, servers.pool(), clients.signCertificate(t, "bob.example.org"))
	require.NoError(t, err)
	require.Equal(t, "200 HTTP/2.0 bob of a", got)
	for about, own := range map[string][]tls.Certificate{
		"none": nil, "of somebody else": {clients.signCertificate(t, "eve.example.org")},
	} {
		got, err := requestTLS(url, servers.pool(), own...)
		require.NoError(t, err, about)
		require.Contains(t, got, "401 ", about)
	}
	other := newAuthority(t)
	_, err = requestTLS(url, servers.pool(), other.signCertificate(t, "bob.example.org"))
	require.Error(t, err, "bob's name, signed by nobody we know")
}
