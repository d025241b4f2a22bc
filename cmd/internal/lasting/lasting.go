// Package lasting recognizes connection errors that a retry can't fix, and adds their remedies. Clients such as package
// s3 stop retrying after such an error.
package lasting

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
)

// Error is a connection error that recurs at every attempt until the configuration is changed.
type Error struct {
	Err error
	// Advice is the remedy.
	Advice string
}

func (e *Error) Error() string { return e.Err.Error() + "; " + e.Advice }
func (e *Error) Unwrap() error { return e.Err }

// Lasting marks the error as one that a retry can't fix, for packages that don't import this package.
func (e *Error) Lasting() bool { return true }

// ErrorOf returns an Error for err, or nil if a retry may succeed. authority describes where the certificate authority
// is configured, such as "ca-file in the URL".
func ErrorOf(err error, authority string) *Error {
	var already *Error
	if err == nil || errors.As(err, &already) {
		return already
	}
	if advice := advice(err, authority); advice != "" {
		return &Error{err, advice}
	}
	return nil
}

func advice(err error, authority string) string {
	var (
		unknown x509.UnknownAuthorityError
		roots   x509.SystemRootsError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		dns     *net.DNSError
	)
	switch {
	case errors.As(err, &unknown), errors.As(err, &roots):
		return "add the CA certificate of the server as " + authority
	case errors.As(err, &name):
		return "correct the host in the URL, or use a certificate that names this host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the server, or correct the clock of this machine"
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, &invalid):
		return "use a valid certificate on the server"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "the server doesn't use TLS on this port: correct the port, or use http:// instead of https://"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "correct the host in the URL"
	}
	return ""
}

// NewTransport returns a transport that calls next and converts connection errors that a retry can't fix to Error.
func NewTransport(next http.RoundTripper, authority string) http.RoundTripper {
	return transport{next, authority}
}

type transport struct {
	next      http.RoundTripper
	authority string
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if lasting := ErrorOf(err, t.authority); lasting != nil {
		return nil, lasting
	}
	return answer, err
}
