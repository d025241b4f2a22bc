package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/doctor"
)

// findingsOf returns the findings that doctor requests from a server.
func findingsOf(t *testing.T, url, login string) []doctor.Finding {
	t.Helper()
	found, err := (&queriedServer{url: url, login: &httpConfig{"http.config.file", login}}).examine(t.Context())
	require.NoError(t, err)
	return found
}

func TestDoctorAsksAServer(t *testing.T) {
	dir := t.TempDir()
	r := startServe(t, "--storage.path="+dir)
	at := time.Now().Truncate(time.Second)
	r.Write(t, "a", at, 1)
	require.Equal(t, "1", r.Value(t, "a", at))
	found := findingsOf(t, r.URL+"/", "")
	require.Zero(t, doctor.CountLevel(found, doctor.Error), found)
	require.Contains(t, found, doctor.Finding{Level: doctor.OK, What: "the server is ready for queries"})
	var whats string
	for _, f := range found {
		whats += f.What + "\n"
	}
	require.Contains(t, whats, dir+" uses ", "the disk")
	require.Contains(t, whats, "with unsealed samples, counted once per partition", "the store")

	nobody := httptest.NewServer(nil)
	nobody.Close()
	found = findingsOf(t, nobody.URL, "")
	require.Len(t, found, 1)
	require.Equal(t, doctor.Error, found[0].Level)
	require.Contains(t, found[0].What, "connection refused")
}

func TestDoctorAsksAServerWithLocks(t *testing.T) {
	r := startServe(t, "--storage.path="+t.TempDir(), "--auth.file="+filepath.Join(examples, "locks", "auth.yml"))
	found := findingsOf(t, r.URL, "")
	last := found[len(found)-1]
	require.Equal(t, doctor.Error, last.Level)
	require.Contains(t, last.What, "401 Unauthorized")
	require.Contains(t, last.Do, "--http.config.file")

	login := filepath.Join(t.TempDir(), "http.yml")
	require.NoError(t, os.WriteFile(login, []byte("basic_auth: {username: ops, password: ops-password}\n"), 0o600))
	require.Zero(t, doctor.CountLevel(findingsOf(t, r.URL, login), doctor.Error))
}
