package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cassia-db/cassia/cmd/internal/lasting"
	"github.com/cassia-db/cassia/storage/pebble/objects"
)

// Bucket is a prefix in a bucket. It implements objects.Bucket. A request that is interrupted or temporarily rejected
// is retried up to maxTries times. After an error that a retry can't fix, such as an untrusted certificate, it fails
// immediately.
type Bucket struct {
	core     minio.Core
	location bucketURL
	at       string // host of the server
}

// Get implements objects.Bucket. If the connection is interrupted, the rest is read over a new connection.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r := &reader{b: b, key: b.location.prefix + name}
	r.ctx, r.stop = withStop(ctx)
	if err := r.open(); err != nil {
		r.stop(nil)
		return nil, err
	}
	return r, nil
}

func (b *Bucket) List(ctx context.Context, prefix string) (out []objects.Object, err error) {
	err = retryInterrupted(ctx, func(ctx context.Context) error {
		out = nil
		known := map[string]bool{}
		o := minio.ListObjectsOptions{Prefix: b.location.prefix + prefix, Recursive: true}
		for found := range b.core.ListObjectsIter(ctx, b.location.bucket, o) {
			if found.Err != nil {
				return found.Err
			}
			if !strings.HasPrefix(found.Key, o.Prefix) || known[found.Key] {
				return notS3Error("the listing of %q contains %q, which has another prefix or is already listed",
					o.Prefix, found.Key)
			}
			known[found.Key] = true
			if name := found.Key[len(b.location.prefix):]; !strings.HasSuffix(name, "/") { // Some servers list folders.
				out = append(out, objects.Object{Name: name, Size: found.Size, Modified: found.LastModified})
			}
		}
		return ctx.Err()
	})
	return out, b.explainError(ctx, err)
}

func (b *Bucket) Delete(ctx context.Context, name string) error {
	err := retryInterrupted(ctx, func(ctx context.Context) error {
		return b.core.RemoveObject(ctx, b.location.bucket, b.location.prefix+name, minio.RemoveObjectOptions{})
	})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil
	}
	return b.explainError(ctx, err)
}

// AbortAbandoned aborts unfinished uploads that were started before the given time, for example by a killed process.
// Their parts use space, although lists of objects don't show them.
func (b *Bucket) AbortAbandoned(ctx context.Context, before time.Time) error {
	return b.explainError(ctx, retryInterrupted(ctx, func(ctx context.Context) error {
		for u := range b.core.ListIncompleteUploads(ctx, b.location.bucket, b.location.prefix+"files/", true) {
			if u.Err != nil {
				return u.Err
			}
			if !u.Initiated.Before(before) {
				continue
			}
			err := b.core.AbortMultipartUpload(ctx, b.location.bucket, u.Key, u.UploadID)
			if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchUpload {
				return err
			}
		}
		return ctx.Err()
	}))
}

// credentialErrors contains error codes for wrong credentials that servers send with statuses other than 401 and 403.
// XAdminUserNotFound is sent by Versity's server.
var credentialErrors = map[string]bool{"ExpiredToken": true, "InvalidToken": true, "InvalidAccessKeyId": true,
	"XAdminUserNotFound": true}

// explainError adds the meaning and the remedy to an error.
func (b *Bucket) explainError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var lasts *lasting.Error
	if errors.As(err, &lasts) || errors.As(context.Cause(ctx), &lasts) {
		return fmt.Errorf("%s: can't use %s: %w", b.location, b.at, lasts)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var none errNoCredentials
	if errors.As(err, &none) {
		return none
	}
	r := minio.ToErrorResponse(err)
	said := fmt.Sprintf("%s at %s: %s (%s)", b.location, b.at, r.Message, r.Code)
	switch r.Code {
	case minio.NoSuchKey:
		return fmt.Errorf("%w: %s", objects.ErrNotFound, r.Key)
	case minio.NoSuchBucket:
		return fmt.Errorf("%s: the bucket doesn't exist; create it, or correct the URL", said)
	case "RequestTimeTooSkewed":
		return fmt.Errorf("%s: the clocks of this machine and the server differ by more than a few minutes", said)
	case minio.InvalidRegion, minio.AuthorizationHeaderMalformed, "PermanentRedirect":
		return fmt.Errorf("%s: set the bucket's region with region= in the URL", said)
	}
	if credentialErrors[r.Code] || r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf(
			"%s: access denied; the credentials need permission to list, read, write and delete below the prefix", said,
		)
	}
	switch {
	case isTriedAgain(r):
		return fmt.Errorf("%s, after up to %d attempts", said, maxTries)
	// The response isn't from S3.
	case r.StatusCode == http.StatusBadRequest && b.core.EndpointURL().Scheme == "http" &&
		strings.HasPrefix(r.Code, "400"):
		return fmt.Errorf("%s: if the server uses TLS, write https:// instead of http:// in the endpoint", said)
	case r.StatusCode != 0:
		return errors.New(said)
	}
	return fmt.Errorf("%s: can't use %s: %w", b.location, b.at, err)
}
