package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
)

// reader reads an object over any number of connections. Objects are immutable, so the parts fit together.
type reader struct {
	b    *Bucket
	ctx  context.Context // from withStop, because the body is read after the request
	stop context.CancelCauseFunc
	key  string
	body io.ReadCloser
	at   int64 // number of bytes read
	size int64
	// breaks is the number of consecutive interruptions.
	breaks int
}

// open requests the object from the current position.
func (r *reader) open() error {
	var o minio.GetObjectOptions
	if r.at > 0 {
		if err := o.SetRange(r.at, 0); err != nil {
			return err
		}
	}
	var body io.ReadCloser
	var info minio.ObjectInfo
	err := retryInterrupted(r.ctx, func(ctx context.Context) (err error) {
		var header http.Header
		body, info, header, err = r.b.core.GetObject(ctx, r.b.location.bucket, r.key, o)
		if err == nil {
			if err = r.checkHeader(header); err != nil {
				err = errors.Join(err, body.Close())
			}
		}
		return err
	})
	if err != nil {
		return r.b.explainError(r.ctx, err)
	}
	if r.at == 0 {
		r.size = info.Size
	}
	r.body = body
	return nil
}

// checkHeader returns an error unless the response contains the object from the current position on.
func (r *reader) checkHeader(header http.Header) error {
	if header.Get("ETag") == "" {
		return notS3Error("the response for %s has no ETag", r.key)
	}
	if at, want := header.Get("Content-Range"), fmt.Sprintf("bytes %d-", r.at); r.at > 0 &&
		!strings.HasPrefix(at, want) {
		return notS3Error("the response for %s has the range %q instead of %q", r.key, at, want)
	}
	return nil
}

func (r *reader) Read(p []byte) (n int, err error) {
	for {
		if r.body == nil {
			if err := r.open(); err != nil {
				return 0, err
			}
		}
		n, err = r.body.Read(p)
		r.at += int64(n)
		if n > 0 {
			r.breaks = 0
		}
		if err != nil && r.at == r.size {
			err = io.EOF // The state of the connection doesn't matter anymore.
		} else if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err == nil || err == io.EOF {
			return n, err
		}
		if r.breaks++; r.breaks > maxBreaks || r.ctx.Err() != nil || r.at > r.size {
			return n, r.b.explainError(r.ctx, err)
		}
		closing := r.body.Close()
		if r.body = nil; n > 0 {
			return n, nil
		}
		if err := waitBeforeRetry(r.ctx, r.breaks); err != nil {
			return 0, errors.Join(err, closing)
		}
	}
}

func (r *reader) Close() error {
	defer r.stop(nil)
	if r.body == nil {
		return nil
	}
	return r.body.Close()
}
