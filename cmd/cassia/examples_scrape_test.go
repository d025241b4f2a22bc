package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	promconfig "github.com/prometheus/common/config"
	"github.com/stretchr/testify/require"
)

// TestScrapesOfExamples starts each example server that the Prometheus operator scrapes, with the arguments and files
// of its pod, and scrapes it as its ServiceMonitor specifies, without and with the token from the referenced Secret.
func TestScrapesOfExamples(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, c := range readExampleCommands(t) {
		for _, scrape := range c.Scrape {
			tried++
			t.Run(c.File+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				require.Equal(t, "https", scrape.Scheme)
				dir := t.TempDir()
				writeCertificate(t, dir, scrape.ServerName)
				web := fmt.Sprintf("tls_server_config: {cert_file: %s/tls.crt, key_file: %s/tls.key}\n", dir, dir)
				secrets := map[string]string{
					"cassia-scrape/token": "scrape-token", "cassia-web/ca.crt": filepath.Join(dir, "tls.crt"),
				}

				var args []string
				for _, arg := range withFiles(t, c, web)[1:] {
					// The test has no bucket for backups, and its own data directory.
					if !strings.HasPrefix(arg, "--backup.") && !strings.HasPrefix(arg, "--storage.path=") &&
						!strings.HasPrefix(arg, "--web.enable-admin-api") {
						args = append(args, arg)
					}
				}
				r := startServe(t, append(args, "--storage.path="+t.TempDir())...)
				conf := promconfig.DefaultHTTPClientConfig
				conf.TLSConfig = promconfig.TLSConfig{CAFile: secrets[scrape.CA], ServerName: scrape.ServerName}
				at := scrape.Scheme + strings.TrimPrefix(r.URL, "http") + scrape.Path
				require.Equal(t, http.StatusUnauthorized, scrapeStatus(t, conf, at), "without a login")
				conf.Authorization = &promconfig.Authorization{
					Type: "Bearer", Credentials: promconfig.Secret(secrets[scrape.Token]),
				}
				require.Equal(t, http.StatusOK, scrapeStatus(t, conf, at))
			})
		}
	}
	require.Equal(t, 2, tried)
}

// scrapeStatus returns the HTTP status of a scrape.
func scrapeStatus(t *testing.T, conf promconfig.HTTPClientConfig, at string) int {
	t.Helper()
	client, err := promconfig.NewClientFromConfig(conf, "scrape")
	require.NoError(t, err)
	answer, err := client.Get(at)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	if answer.StatusCode == http.StatusOK {
		require.Contains(t, string(text), "cassia_build_info")
	}
	return answer.StatusCode
}

// writeCertificate writes a self-signed certificate for a host name, and its key.
func writeCertificate(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
}
