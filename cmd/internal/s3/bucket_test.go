package s3

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
	"github.com/cassia-db/cassia/storage/pebble/objects"
)

func TestMain(m *testing.M) {
	for _, variable := range s3test.Environment {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	firstPause = time.Millisecond
	os.Exit(m.Run())
}

func openBucket(t *testing.T, url string) *Bucket {
	b, err := Open(t.Context(), url)
	require.NoError(t, err)
	return b
}

// randomContent returns n pseudo-random bytes, the same for each call.
func randomContent(n int) []byte {
	out := make([]byte, n)
	r := mathrand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(out)
	return out
}

func put(t *testing.T, b *Bucket, name string, text []byte) error {
	return b.Put(t.Context(), name, bytes.NewReader(text), int64(len(text)))
}

func get(t *testing.T, b *Bucket, name string) ([]byte, error) {
	in, err := b.Get(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

func needsServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an S3 server: leave -short out")
	}
	t.Parallel()
}

// TestBucket checks that objects of various sizes, with one part and with multiple parts, are stored and read correctly
// while every third request has a fault.
func TestBucket(t *testing.T) {
	needsServer(t)
	server := s3test.Start(t)
	faults := []s3test.Fault{s3test.Unavailable, s3test.CutRequest, s3test.CutResponse, s3test.LoseResponse}
	proxy := s3test.NewProxy(t, server.Address, func(n int, _ *http.Request) s3test.Fault {
		if n%3 == 1 {
			return faults[n/3%len(faults)]
		}
		return s3test.NoFault
	})
	b := openBucket(t, s3test.At(proxy.Address, "some/prefix"))
	direct := openBucket(t, s3test.At(server.Address, "some/prefix/"))
	sizes := []int{0, 1, 1000, partBytes, partBytes + 1, 3 * partBytes}
	for i, n := range sizes {
		name := fmt.Sprintf("files/%d", i)
		require.NoError(t, put(t, b, name, randomContent(n)))
		for _, from := range []*Bucket{direct, b} {
			got, err := get(t, from, name)
			require.NoError(t, err)
			require.True(t, bytes.Equal(randomContent(n), got), "%d bytes", n)
		}
	}
	require.NoError(t, put(t, direct, "other", []byte("x")))
	found, err := b.List(t.Context(), "files/")
	require.NoError(t, err)
	require.Len(t, found, len(sizes))
	for _, o := range found {
		require.Regexp(t, `^files/\d$`, o.Name)
		require.WithinDuration(t, time.Now(), o.Modified, time.Hour)
	}
	require.NoError(t, b.Delete(t.Context(), "files/1"))
	require.NoError(t, b.Delete(t.Context(), "files/1"), "it is gone already")
	_, err = get(t, b, "files/1")
	require.ErrorIs(t, err, objects.ErrNotFound)
	found, err = b.List(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, found, len(sizes))
	require.Greater(t, proxy.RequestCount(), 30)
}

// TestBucketSaysWhatIsWrong checks that errors name the remedy and never contain the secret.
func TestBucketSaysWhatIsWrong(t *testing.T) {
	needsServer(t)
	server := s3test.Start(t)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, dead.Close())
	down := s3test.NewProxy(t, server.Address, func(int, *http.Request) s3test.Fault { return s3test.Unavailable })
	var waiting errgroup.Group
	for url, want := range map[string]string{
		"s3://nothing/x?endpoint=http://" + server.Address:                   "the bucket doesn't exist; create it, or correct the URL",
		s3test.At(dead.Addr().String(), ""):                                  "connection refused",
		s3test.At(down.Address, ""):                                          "after up to 20 attempts",
		s3test.At(server.Address, "") + "&region=eu-west-1":                  "set the bucket's region with region= in the URL",
		strings.Replace(s3test.At(server.Address, ""), "http:", "https:", 1): "can't use",
	} {
		waiting.Go(func() error {
			b := openBucket(t, url)
			err := list(t, b)
			if mathrand.IntN(2) == 0 {
				err = put(t, b, "a", []byte("x"))
			}
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), s3test.SecretKey) {
				return fmt.Errorf("%s: %w", url, err)
			}
			return nil
		})
	}
	require.NoError(t, waiting.Wait())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(
		t, openBucket(t, s3test.At(down.Address, "")).Put(ctx, "a", strings.NewReader("x"), 1), context.Canceled,
	)
}

func list(t *testing.T, b *Bucket) error {
	_, err := b.List(t.Context(), "")
	return err
}

// TestCredentials checks the errors for rejected and for missing credentials.
func TestCredentials(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an S3 server: leave -short out")
	}
	server := s3test.Start(t)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
	require.ErrorContains(t, list(t, openBucket(t, s3test.At(server.Address, ""))),
		"access denied; the credentials need permission to list, read, write and delete below the prefix")
	t.Setenv("AWS_ACCESS_KEY_ID", "nobody")
	err := put(t, openBucket(t, s3test.At(server.Address, "")), "a", []byte("x"))
	require.ErrorContains(t, err,
		"access denied; the credentials need permission to list, read, write and delete below the prefix")
	require.NotContains(t, err.Error(), "another-secret")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	require.ErrorContains(t, list(t, openBucket(t, s3test.At(server.Address, ""))),
		"no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with ~/.aws/credentials (")

	file := filepath.Join(t.TempDir(), "credentials")
	require.NoError(t, os.WriteFile(
		file, []byte("[backups]\naws_access_key_id="+s3test.AccessKey+"\naws_secret_access_key="+s3test.SecretKey+"\n"),
		0o600,
	))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_PROFILE", "backups")
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://"+server.Address)
	require.NoError(t, list(t, openBucket(t, "s3://"+s3test.Bucket)))
}

// TestAbandonedUploads checks when uploads that didn't finish are removed.
func TestAbandonedUploads(t *testing.T) {
	needsServer(t)
	b := openBucket(t, s3test.At(s3test.Start(t).Address, "p"))
	ctx, cancel := context.WithCancel(t.Context())
	stops := &stoppingReader{left: partBytes + 1000, stop: cancel}
	unfinished := func() (n int) {
		for u := range b.core.ListIncompleteUploads(t.Context(), b.location.bucket, "", true) {
			require.NoError(t, u.Err)
			n++
		}
		return n
	}
	require.Error(t, b.Put(ctx, "files/x", stops, 3*partBytes))
	require.Zero(t, unfinished(), "an upload that ends with an error is ended")
	// Start an upload and abandon it, as a killed process does.
	upload, err := b.core.NewMultipartUpload(t.Context(), b.location.bucket, "p/files/x", minio.PutObjectOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, upload)
	require.Equal(t, 1, unfinished())
	require.NoError(t, b.AbortAbandoned(t.Context(), time.Now().Add(-time.Hour)))
	require.Equal(t, 1, unfinished(), "it may be going on")
	require.NoError(t, b.AbortAbandoned(t.Context(), time.Now().Add(time.Hour)))
	require.Zero(t, unfinished())
}

// stoppingReader is a reader that cancels a context after some bytes.
type stoppingReader struct {
	left int
	stop func()
}

func (s *stoppingReader) Read(p []byte) (int, error) {
	n := min(len(p), s.left)
	if s.left -= n; n == 0 {
		s.stop()
		return 0, context.Canceled
	}
	return n, nil
}

// TestTLS checks that ca-file makes a server's certificate trusted, and that requests without ca-file or with a wrong
// file fail.
func TestTLS(t *testing.T) {
	needsServer(t)
	cert, key := createCertificate(t)
	server := s3test.Start(t, "-cert="+cert, "-key="+key)
	url := strings.Replace(s3test.At(server.Address, ""), "http:", "https:", 1)
	require.NoError(t, put(t, openBucket(t, url+"&ca-file="+cert), "a", randomContent(partBytes+1)))
	got, err := get(t, openBucket(t, url+"&ca-file="+cert), "a")
	require.NoError(t, err)
	require.True(t, bytes.Equal(randomContent(partBytes+1), got))
	require.ErrorContains(t, list(t, openBucket(t, url)), "certificate signed by unknown authority")
	_, err = Open(t.Context(), url+"&ca-file="+key)
	require.ErrorContains(t, err, "contains no PEM certificate")
}

// createCertificate creates a self-signed certificate for loopback addresses.
func createCertificate(t *testing.T) (certFile, keyFile string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	return certFile, keyFile
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"s3://":                                  "must be like s3://BUCKET",
		"s3://key:secret@bucket/x":               "must not contain credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or AWS_PROFILE with ~/.aws/credentials",
		"s3://bucket?secret-key=secret":          "must not contain credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or AWS_PROFILE with ~/.aws/credentials",
		"s3://bucket?endpoint=x:1":               "isn't like https://HOST:PORT",
		"s3://bucket?endpoint=http://u:secret@h": "isn't like https://HOST:PORT",
		"s3://bucket?path-style=maybe":           "must be true or false",
		"s3://bucket?regoin=x":                   `unknown parameter "regoin"`,
		"s3://bucket/%zz-secret":                 "must be like s3://BUCKET",
		"s3://bu cket":                           "must be like s3://BUCKET",
		"s3://bucket/x?ca-file=/nowhere":         "ca-file: open /nowhere",
		"s3://b/x":                               "must have 3 to 63",
	} {
		_, err := Open(t.Context(), text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "secret@", text)
	}
	for text, want := range map[string]string{
		"s3://bucket": "s3://bucket", "s3://bucket//a/../b/?region=x": "s3://bucket/b",
	} {
		require.Equal(t, want, Name(text))
	}
}
