package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// maxTries is the max number of attempts for a request. The pauses between them grow to a second, so that all
	// attempts take about ten seconds.
	maxTries = 20
	// maxSilence is the max time without any bytes sent or received on a connection.
	maxSilence = 2 * time.Minute
	// credentialsTimeout is the max time for obtaining credentials.
	credentialsTimeout = 30 * time.Second
)

// Open returns the bucket at a URL. It doesn't send a request.
func Open(ctx context.Context, text string) (*Bucket, error) {
	l, err := parse(text)
	if err != nil {
		return nil, err
	}
	var options []func(*awsconfig.LoadOptions) error
	if l.region != "" {
		options = append(options, awsconfig.WithRegion(l.region))
	}
	conf, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("S3 configuration: %w", err)
	}
	if l.endpoint == "" && conf.BaseEndpoint != nil { // The endpoint is set in the profile.
		l.endpoint = *conf.BaseEndpoint
	}
	if l.region = conf.Region; l.region == "" && l.endpoint != "" {
		l.region = "us-east-1" // Servers other than Amazon's usually have a single region with this name.
	}
	at := &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}
	if l.endpoint != "" {
		if at, err = url.Parse(l.endpoint); err != nil {
			return nil, fmt.Errorf("the endpoint is not a valid URL")
		}
	}
	transport, err := transportOf(l.caFile)
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if l.usesPathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds: credentials.New(awsCredentials{conf.Credentials}), Secure: at.Scheme == "https",
		Transport: stopAtLasting{transport},
		Region:    l.region, BucketLookup: lookup, MaxRetries: maxTries,
	})
	if err != nil {
		return nil, fmt.Errorf("S3: %w", err)
	}
	client.SetAppInfo("cassia", "1")
	return &Bucket{core: minio.Core{Client: client}, location: l, at: at.Host}, nil
}

// awsCredentials obtains credentials from Amazon's library, which renews them.
type awsCredentials struct{ from aws.CredentialsProvider }

func (a awsCredentials) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	ctx, cancel := context.WithTimeout(context.Background(), credentialsTimeout)
	defer cancel()
	c, err := a.from.Retrieve(ctx)
	if err != nil {
		return credentials.Value{}, errNoCredentials{err}
	}
	return credentials.Value{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey,
		SessionToken: c.SessionToken, SignerType: credentials.SignatureV4}, nil
}

func (a awsCredentials) Retrieve() (credentials.Value, error) { return a.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider. It always returns true, so that the credentials are obtained from Amazon's
// library for each request. The library caches them.
func (a awsCredentials) IsExpired() bool { return true }

// errNoCredentials means that no credentials were found.
type errNoCredentials struct{ err error }

func (e errNoCredentials) Error() string {
	return "no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with " +
		"~/.aws/credentials (" + e.err.Error() + ")"
}

func (e errNoCredentials) Unwrap() error { return e.err }

// transportOf returns a transport that trusts the system's certificate authorities and those in a file, if it is set.
func transportOf(caFile string) (*http.Transport, error) {
	trusted := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("ca-file: %w", err)
		}
		if trusted.RootCAs, err = x509.SystemCertPool(); err != nil {
			trusted.RootCAs = x509.NewCertPool()
		}
		if !trusted.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca-file: %s contains no PEM certificate", caFile)
		}
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: trusted, DisableCompression: true,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 30 * time.Second,
		ResponseHeaderTimeout: maxSilence,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return deadlineConn{c}, nil
		},
	}, nil
}

// deadlineConn is a connection that fails if no bytes are transferred for the duration silence.
type deadlineConn struct{ net.Conn }

func (d deadlineConn) Read(p []byte) (int, error) {
	if err := d.SetReadDeadline(time.Now().Add(maxSilence)); err != nil {
		return 0, err
	}
	return d.Conn.Read(p)
}

func (d deadlineConn) Write(p []byte) (int, error) {
	if err := d.SetWriteDeadline(time.Now().Add(maxSilence)); err != nil {
		return 0, err
	}
	return d.Conn.Write(p)
}
