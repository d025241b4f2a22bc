package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/config"
)

// secretsRig is a server with users. It records all responses.
type secretsRig struct {
	url     string
	secrets []string
	// told contains the text of all responses.
	told bytes.Buffer
}

// TestNoSecretIsTold sends correct and wrong passwords and tokens to every route, reads every page, and requires that
// no secret appears in any response or log line.
func TestNoSecretIsTold(t *testing.T) {
	const password, token, cassandra, guess = "right-password-1", "right-token-2", "cassandra-password-3", "wrong-guess-4"
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	digest := sha256.Sum256([]byte(token))
	dir := t.TempDir()
	users, passwordFile := filepath.Join(dir, "auth.yml"), filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(passwordFile, []byte(cassandra+"\n"), 0o600))
	good := "users:\n- {name: ops, password: " + string(hash) + ", tokens: ['sha256:" + hex.EncodeToString(digest[:]) +
		"'], roles: [admin], tenants: '*'}\n"
	require.NoError(t, os.WriteFile(users, []byte(good), 0o600))
	t.Setenv("CASSIA_CASSANDRA_PASSWORD", cassandra)

	r := &secretsRig{secrets: []string{password, token, cassandra, guess, string(hash), hex.EncodeToString(digest[:])}}
	log, stop := r.start(t, "--storage.path="+dir+"/data", "--auth.file="+users, "--web.enable-lifecycle",
		"--cassandra.username=cassia", "--cassandra.password-file="+passwordFile)
	for _, path := range []string{
		"/", "/metrics", "/-/ready", "/-/downsample", "/-/reload", "/-/seal", "/debug/pprof/cmdline", "/nothing",
		"/t/a/api/v1/query?query=up", "/api/v1/status/flags", "/api/v1/status/config", "/api/v1/status/runtimeinfo",
		"/api/v1/status/buildinfo", "/api/v1/status/tsdb",
		"/api/v1/query?query=((", "/api/v1/write", "/api/v1/read", "/api/v1/admin/tsdb/delete_series",
		"/api/v1/otlp/v1/metrics",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, shown := range [][2]string{{"ops", password}, {"", token}, {"ops", guess}, {"", guess}} {
				r.requestStatus(t, method, path, shown[0], shown[1])
			}
		}
	}
	require.Contains(t, r.told.String(), "cassandra.password-file", "the flags were read")
	for _, bad := range []string{
		good + "  " + password + "\n", "users: [{name: ops, password: " + guess + "}]", "users: [" + token + "]",
	} {
		require.NoError(t, os.WriteFile(users, []byte(bad), 0o600))
		code := r.requestStatus(t, http.MethodPost, "/-/reload", "ops", password)
		require.Equal(t, http.StatusInternalServerError, code,
			"the old users stay")
	}
	stop()
	require.Contains(t, log.String(), "--auth.file", "reloading was logged")
	for _, secret := range r.secrets {
		require.NotContains(t, r.told.String(), secret, "an answer tells a secret")
		require.NotContains(t, log.String(), secret, "the log tells a secret")
	}
}

// start runs serve as the command does. Its log contains all levels.
func (r *secretsRig) start(t *testing.T, args ...string) (log *lockedBuffer, stop func()) {
	t.Helper()
	app := kingpin.New("cassia", "")
	cmd := app.Command("serve", "")
	c := config.RegisterFlags(cmd, 1<<30)
	_, err := app.Parse(append(
		[]string{"serve", "--web.listen-address=127.0.0.1:0", "--web.enable-admin-api"}, args...,
	))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	flags := map[string]string{}
	for _, f := range cmd.Model().Flags {
		flags[f.Name] = f.Value.String()
	}
	log = &lockedBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		handler := slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})
		ended <- runServer(ctx, c, flags, slog.New(handler),
			func(a []string) { listening <- a[0] })
	}()
	select {
	case address := <-listening:
		r.url = "http://" + address
	case err := <-ended:
		t.Fatalf("serve ended: %v", err)
	}
	require.Eventually(t, func() bool {
		answer, err := http.Get(r.url + "/-/ready")
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, cassiatest.Patience, 5*time.Millisecond, "this page is open to all")
	return log, func() { cancel(); require.NoError(t, <-ended) }
}

// requestStatus sends a request with basic authentication or, if user is empty, with secret as bearer token. It appends
// the response to r.told and returns the status code.
func (r *secretsRig) requestStatus(t *testing.T, method, path, user, secret string) int {
	t.Helper()
	request, err := http.NewRequest(method, r.url+path, strings.NewReader(""))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+secret)
	if user != "" {
		request.SetBasicAuth(user, secret)
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.NoError(t, answer.Header.Write(&r.told))
	_, err = io.Copy(&r.told, answer.Body)
	require.NoError(t, err)
	return answer.StatusCode
}
