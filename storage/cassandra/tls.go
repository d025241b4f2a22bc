package cassandra

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// config reads the files.
func (o *TLSOptions) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName, InsecureSkipVerify: o.SkipVerify}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("cassandra: TLS: read the CA's certificates (%w): %w", errSettings, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("cassandra: TLS: %s holds no certificate as PEM (%w)", o.CAFile, errSettings)
		}
	}
	if o.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cassandra: TLS: load %s and %s (%w): %w", o.CertFile, o.KeyFile, errSettings, err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}
