// Package s3test starts a real S3 server for tests, and a proxy that injects faults into requests to it.
package s3test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// Bucket is the name of the server's bucket.
const Bucket = "backups"

// The credentials of the server.
const (
	AccessKey = "test-access-key"
	SecretKey = "test-secret-key"
)

// Environment contains environment variables that set the credentials and disable other credentials on the machine.
var Environment = []string{
	"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey, "AWS_CONFIG_FILE=/dev/null",
	"AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	"AWS_EC2_METADATA_DISABLED=true",
}

// Server is a running S3 server. Its bucket is empty at the start.
type Server struct {
	*promrig.Process
	dir string
}

// Start starts a server that runs until the test ends. It skips the test if the program is missing. The flags are
// passed to the program docker/s3.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	binary, err := promrig.Binary("CASSIA_TEST_S3_SERVER", "s3-server")
	if err != nil {
		t.Skip(err)
	}
	address, err := promrig.FreeAddress()
	require.NoError(t, err)
	s := &Server{dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(s.BucketDir(), 0o755))
	program := promrig.Program{
		Name: "s3-server", Path: binary, Address: address, ReadyPath: "/ready",
		Log:  filepath.Join(t.TempDir(), "s3.log"),
		Args: append([]string{"-listen=" + address, "-dir=" + s.dir}, flags...),
		TLS:  len(flags) > 0, // The flags name the certificate.
		Env:  []string{"ROOT_ACCESS_KEY=" + AccessKey, "ROOT_SECRET_KEY=" + SecretKey},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s.Process, err = promrig.StartReady(ctx, program)
	require.NoError(t, err)
	t.Cleanup(s.Kill)
	return s
}

// BucketDir returns the folder that contains the bucket's objects.
func (s *Server) BucketDir() string { return filepath.Join(s.dir, "buckets", Bucket) }

// At returns the URL of a prefix in the bucket. address is the address of the server or of a proxy.
func At(address, prefix string) string {
	return "s3://" + Bucket + "/" + prefix + "?endpoint=http://" + address
}
