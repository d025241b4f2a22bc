package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
)

// throttledBody is a request body that advances the clock as it is read, which simulates a slow upload.
type throttledBody struct {
	io.ReadCloser
	clock *workClock
}

func (b throttledBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.clock.advance(n)
	}
	return n, err
}

// TestRemainingTimeOfABackupToABucket checks the displayed remaining times while uploads to an S3 server, and writes of
// the files that are downloaded from it, are throttled. Each file is a small part of the total, because the progress is
// inexact by a few files: an upload is counted as soon as the operating system has buffered it, and files are uploaded
// concurrently.
func TestRemainingTimeOfABackupToABucket(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an S3 server: leave -short out")
	}
	for _, variable := range s3test.Environment {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	checkpoint, rng := t.TempDir(), rand.NewChaCha8([32]byte{1})
	content := make([]byte, 32<<10)
	for i := range 200 {
		_, _ = rng.Read(content) // Read never fails.
		require.NoError(t, os.WriteFile(filepath.Join(checkpoint, fmt.Sprint("file-", i)), content, 0o600))
	}
	server, clock := s3test.Start(t), &workClock{}
	proxy := s3test.NewProxy(t, server.Address, func(_ int, r *http.Request) s3test.Fault {
		r.Body = throttledBody{r.Body, clock}
		return s3test.NoFault
	})
	place := &backups.Location{At: s3test.At(proxy.Address, "progress")}
	run := func(what string, now func() time.Time, do func(ctx context.Context) error) {
		shown := &shownLines{now: now}
		began := shown.now()
		bar := &meterBar{bar: shown.bar(), what: what, unit: dayBytes}
		require.NoError(t, do(bar.withMeter(t.Context())))
		shown.requireHonest(t, began, 0.1)
	}
	name := backupName(time.Now())
	run("backing up", clock.now, func(ctx context.Context) error {
		_, err := place.Backup(ctx, checkpoint, name, time.Now())
		return err
	})
	restored := filepath.Join(t.TempDir(), "restored")
	run("restoring", bytesIn(restored), func(ctx context.Context) error {
		_, err := place.Restore(ctx, name, restored)
		return err
	})
}
