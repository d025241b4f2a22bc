package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/cassia-db/cassia/cmd/internal/webconfig"
)

// brokenWebConfigs returns invalid web configurations, each with its expected error.
func brokenWebConfigs(t *testing.T, servers testAuthority) []struct{ file, text, want string } {
	t.Helper()
	dir := t.TempDir()
	writeServerFiles(t, dir, servers.signCertificate(t, "cassia.example.org"))
	text := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	const valid = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
	const missing = "" // The file doesn't exist.
	return []struct{ file, text, want string }{
		{"server.crt", "x", "failed to find any PEM data"},
		{"server.crt", missing, "no such file"},
		{"server.crt", text("server.crt"), "private key does not match"},
		{"server.key", text("server.key"), "private key does not match"},
		{"server.key", missing, "no such file"},
		{"clients.crt", "x", "client_ca and client_ca_file: no certificate found; must be PEM"},
		{"clients.crt", missing, "no such file"},
		{"web.yml", "x: [", "did not find"},
		{"web.yml", "\n", "TLS can't be enabled or disabled while Cassia runs"},
		{"web.yml", missing, "no such file"},
		{"web.yml", valid + "foo: 1\n", "field foo not found"},
		{"web.yml", valid + "---\nbasic_auth_users: {}\n", "more than one document"},
		{"web.yml", valid + "basic_auth_users: {a: plain}\n", "must be a bcrypt hash"},
		{"web.yml", valid + "basic_auth_users: {a: $2a$04$012345678901234567890u012345678901234567890123456789.}\n", "can't be used together with --auth.file"},
		{"web.yml", valid + "http_server_config: {headers: {Server: x}}\n", "can not be configured"},
		{"web.yml", "tls_server_config: {cert_file: server.crt, key_file: server.key, min_version: TLS13, max_version: TLS12}\n", "must not be above max_version"},
		{"web.yml", "tls_server_config: {cert_file: server.crt, key_file: server.key, cipher_suites: [TLS_AES_128_GCM_SHA256]}\n", "or http2 must be false"},
		{"web.yml", "tls_server_config: {cert_file: server.crt, key_file: server.key, client_ca_file: server.crt}\n", "without a Client Auth Policy"},
	}
}

// secureClient returns an HTTP client that trusts an authority.
func secureClient(t *testing.T, trusted *x509.CertPool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func bodyOf(t *testing.T, answer *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return string(text)
}

// TestBrokenWebConfig checks that the last valid settings stay in effect while a file is invalid. Requests and reloads
// report when the error starts and ends.
func TestBrokenWebConfig(t *testing.T) {
	servers, clients := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	web, err := webconfig.Open(writeWebConfig(t, dir, servers, clients, "VerifyClientCertIfGiven"), true)
	require.NoError(t, err)
	var log bytes.Buffer
	clock := now()
	files := NewReloaders(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)), func() time.Time {
		return clock
	})
	files.Add("web", web.Reload)
	web.OnReload(func(err error) { files.RecordResult("web", err) })
	o := testOptions()
	o.Reload = files.Reload
	url := "https://" + serveSecurely(t, web, NewHandler(o))
	get := func(about string) {
		got, err := requestTLS(url+"/-/healthy", servers.pool(), clients.signCertificate(t, "a"))
		require.NoError(t, err, about)
		require.Equal(t, "200 HTTP/2.0 Cassia is healthy.\n", got, about)
	}
	for i, c := range brokenWebConfigs(t, servers) {
		about, path := fmt.Sprintf("%d %s", i, c.file), filepath.Join(dir, c.file)
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		if c.text != "" {
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		}
		log.Reset()
		clock = clock.Add(time.Minute)
		get(about)
		require.Zero(t, testutil.ToFloat64(files.ok), about)
		get(about)
		require.Equal(t, 1, strings.Count(log.String(), "can't reload"),
			"%s: one line per error and minute: %s", about, &log)
		require.Contains(t, log.String(), c.want, about)
		client := secureClient(t, servers.pool())
		answer, err := client.Post(url+"/-/reload", "", nil)
		require.NoError(t, err, about)
		require.Equal(t, http.StatusInternalServerError, answer.StatusCode, about)
		require.Contains(t, bodyOf(t, answer), c.want, about)
		require.NoError(t, os.WriteFile(path, before, 0o600))
		get(about)
		require.EqualValues(t, 1, testutil.ToFloat64(files.ok), about)
		require.NoError(t, files.Reload(), about)
	}
}

// TestChangedWebConfig checks that new certificates and users take effect without a reload.
func TestChangedWebConfig(t *testing.T) {
	servers, dir := newAuthority(t), t.TempDir()
	file := writeWebConfig(t, dir, servers, servers, "")
	web, err := webconfig.Open(file, false)
	require.NoError(t, err)
	url := "https://" + serveSecurely(t, web, NewHandler(testOptions())) + "/-/healthy"
	other := newAuthority(t)
	writeServerFiles(t, dir, other.signCertificate(t, "cassia.example.org"))
	got, err := requestTLS(url, other.pool())
	require.NoError(t, err)
	require.Contains(t, got, "200 HTTP/2.0 ")
	require.False(t, web.HasUsers())

	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t,
		os.WriteFile(file, []byte(string(text)+"http_server_config: {http2: false, headers: {X-Frame-Options: deny}}\n"+
			"rate_limit: {interval: 1h, burst: 2}\nbasic_auth_users: {ada: "+string(hash)+"}\n"), 0o600))
	client := secureClient(t, other.pool())
	for password, want := range map[string]int{"secret": http.StatusOK, "guess": http.StatusUnauthorized} {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		require.NoError(t, err)
		r.SetBasicAuth("ada", password)
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.Equal(t, want, answer.StatusCode, bodyOf(t, answer))
		require.Equal(t, "deny", answer.Header.Get("X-Frame-Options"))
		require.Equal(t, "HTTP/1.1", answer.Proto)
	}
	require.True(t, web.HasUsers())
	got, err = requestTLS(url, other.pool())
	require.NoError(t, err)
	require.Contains(t, got, "429 ", "rate_limit")
}

// TestReloadersNote checks that a valid file doesn't hide the error of another file.
func TestReloadersNote(t *testing.T) {
	files := NewReloaders(prometheus.NewRegistry(), quietLogger, now)
	files.Add("a", func() error { return nil })
	files.RecordResult("a", nil)
	files.RecordResult("b", os.ErrNotExist)
	files.RecordResult("a", nil)
	ok, _ := files.LastReload()
	require.False(t, ok)
	require.Zero(t, testutil.ToFloat64(files.ok))
	files.RecordResult("b", nil)
	ok, last := files.LastReload()
	require.True(t, ok)
	require.Equal(t, now(), last)
}
