package webconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
	"golang.org/x/time/rate"

	"github.com/cassia-db/cassia/cmd/internal/auth"
	"github.com/cassia-db/cassia/storage/bounds"
)

// maxFile is the max size of the file in bytes.
const maxFile = 4 << 20

// settings is the valid contents of the files. It is immutable.
type settings struct {
	tls     *tls.Config // nil: no TLS
	users   *auth.Guard // nil: no users
	headers map[string]string
	limiter *rate.Limiter // nil: no rate limit
}

// parse reads and validates the files. It first records their state.
func (f *File) parse() (*settings, error) {
	f.recordState(f.path)
	text, err := bounds.ReadFile(f.path, maxFile)
	if err != nil {
		return nil, err
	}
	c := &web.Config{
		TLSConfig: web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13,
			PreferServerCipherSuites: true},
		HTTPConfig: web.HTTPConfig{HTTP2: true},
	}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, err
	}
	if d := yaml.NewDecoder(bytes.NewReader(text)); d.Decode(new(any)) == nil &&
		!errors.Is(d.Decode(new(any)), io.EOF) {
		return nil, errors.New("the file has more than one document")
	}
	c.TLSConfig.SetDirectory(filepath.Dir(f.path))
	f.recordState(c.TLSConfig.TLSCertPath, c.TLSConfig.TLSKeyPath, c.TLSConfig.ClientCAs)
	for path, info := range f.read {
		if info != nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s isn't a regular file", path)
		}
	}
	s := &settings{headers: c.HTTPConfig.Header}
	if len(c.Users) > 0 {
		hashes := map[string]string{}
		for name, hash := range c.Users {
			hashes[name] = string(hash)
		}
		if s.users, err = auth.OfHashes(hashes); err != nil {
			return nil, err
		}
	}
	// Use the toolkit to validate the headers, because it exports no function for this alone.
	if err := web.Validate(f.path); err != nil {
		return nil, err
	}
	if c.TLSConfig.IsEnabled() {
		if s.tls, err = newTLS(&c.TLSConfig, c.HTTPConfig.HTTP2); err != nil {
			return nil, err
		}
	}
	if limit := c.RateLimiterConfig; limit.Interval != 0 {
		s.limiter = rate.NewLimiter(rate.Every(limit.Interval), limit.Burst)
	}
	return s, nil
}

// recordState records the state of files that are about to be read.
func (f *File) recordState(paths ...string) {
	for _, path := range paths {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		f.read[path] = info
	}
}

// newTLS returns the TLS configuration for a handshake, with the loaded certificates.
func newTLS(c *web.TLSConfig, http2 bool) (*tls.Config, error) {
	t, err := web.ConfigToTLSConfig(c)
	if err != nil {
		return nil, err
	}
	own, err := t.GetCertificate(nil)
	if err != nil {
		return nil, err
	}
	t.GetCertificate, t.Certificates = nil, []tls.Certificate{*own}
	switch {
	case t.ClientCAs != nil && t.ClientCAs.Equal(x509.NewCertPool()):
		return nil, errors.New("client_ca and client_ca_file: no certificate found; must be PEM")
	case t.MinVersion > t.MaxVersion:
		return nil, errors.New("min_version must not be above max_version")
	case http2 && !allowsHTTP2(t):
		return nil, errors.New(
			"cipher_suites must contain TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or " +
				"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, or http2 must be false",
		)
	}
	t.NextProtos = []string{"http/1.1"}
	if http2 {
		t.NextProtos = []string{"h2", "http/1.1"}
	}
	return t, nil
}

// allowsHTTP2 reports whether the cipher suites include a suite that HTTP/2 requires with TLS 1.2.
func allowsHTTP2(t *tls.Config) bool {
	return t.CipherSuites == nil || t.MinVersion >= tls.VersionTLS13 ||
		slices.Contains(t.CipherSuites, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) ||
		slices.Contains(t.CipherSuites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
}
