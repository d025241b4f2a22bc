package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
)

// partBytes is the size of each part of an upload. Parts are held in memory while they are uploaded. S3 allows 10,000
// parts.
const partBytes = 8 << 20

// Put implements objects.Bucket. The server verifies the checksums of each part and creates the object atomically.
func (b *Bucket) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	key := b.location.prefix + name
	part := make([]byte, min(size, partBytes))
	if _, err := io.ReadFull(from, part); err != nil {
		return err
	}
	if size > partBytes {
		return b.putParts(ctx, key, part, from, size)
	}
	if err := checkEOF(from); err != nil {
		return err
	}
	o := minio.PutObjectOptions{ContentType: contentType, DisableContentSha256: true} // The checksum is set explicitly.
	md5, sha256 := sumsOf(part)
	return b.explainError(ctx, retryInterrupted(ctx, func(ctx context.Context) error {
		info, err := b.core.PutObject(ctx, b.location.bucket, key, bytes.NewReader(part), size, md5, sha256, o)
		if err == nil && info.ETag == "" {
			err = notS3Error("the upload of %s was acknowledged without an ETag", key)
		}
		return err
	}))
}

const contentType = "application/octet-stream"

// checkEOF returns an error unless all bytes of a reader have been read.
func checkEOF(from io.Reader) error {
	n, err := io.CopyN(io.Discard, from, 1)
	if n > 0 {
		return errors.New("S3: the content is longer than its declared size")
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// sumsOf returns the checksums with which the server verifies a part: MD5, and SHA-256, which is part of the signature.
// Some servers check only one of them.
func sumsOf(part []byte) (md5Base64, sha256Hex string) {
	m, s := md5.Sum(part), sha256.Sum256(part)
	return base64.StdEncoding.EncodeToString(m[:]), hex.EncodeToString(s[:])
}

// putParts uploads an object in multiple parts. part contains the first part. Its memory is reused for the others.
func (b *Bucket) putParts(ctx context.Context, key string, part []byte, from io.Reader, size int64) (err error) {
	var upload string
	err = retryInterrupted(ctx, func(ctx context.Context) (err error) {
		upload, err = b.core.NewMultipartUpload(ctx, b.location.bucket, key,
			minio.PutObjectOptions{ContentType: contentType})
		return err
	})
	if err != nil {
		return b.explainError(ctx, err)
	}
	defer func() {
		if err != nil { // This is best effort; AbortAbandoned aborts the remaining uploads.
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = b.core.AbortMultipartUpload(ending, b.location.bucket, key, upload)
		}
	}()
	var parts []minio.CompletePart
	for left := size; ; {
		var done minio.ObjectPart
		o := minio.PutObjectPartOptions{DisableContentSha256: true}
		o.Md5Base64, o.Sha256Hex = sumsOf(part)
		err := retryInterrupted(ctx, func(ctx context.Context) (err error) {
			done, err = b.core.PutObjectPart(ctx, b.location.bucket, key, upload, len(parts)+1,
				bytes.NewReader(part), int64(len(part)), o)
			return err
		})
		if err != nil {
			return b.explainError(ctx, err)
		}
		parts = append(parts, minio.CompletePart{PartNumber: len(parts) + 1, ETag: done.ETag})
		if left -= int64(len(part)); left == 0 {
			break
		}
		part = part[:min(left, partBytes)]
		if _, err := io.ReadFull(from, part); err != nil {
			return err
		}
	}
	if err := checkEOF(from); err != nil {
		return err
	}
	return b.completeUpload(ctx, key, upload, parts, size)
}

// completeUpload completes a multipart upload. If the response was lost, the next attempt may fail because the upload
// is complete. The object then exists with the expected size, because names are never reused.
func (b *Bucket) completeUpload(ctx context.Context, key, upload string, parts []minio.CompletePart, size int64) error {
	err := retryInterrupted(ctx, func(ctx context.Context) error {
		_, err := b.core.CompleteMultipartUpload(ctx, b.location.bucket, key, upload, parts, minio.PutObjectOptions{})
		return err
	})
	if minio.ToErrorResponse(err).Code == minio.NoSuchUpload {
		info, statErr := b.core.StatObject(ctx, b.location.bucket, key, minio.StatObjectOptions{})
		if statErr == nil && info.Size == size {
			return nil
		}
	}
	return b.explainError(ctx, err)
}
