package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReloadsAreShown checks that Prometheus' API returns whether the last reload of the configuration files succeeded,
// and the time of the last successful reload.
func TestReloadsAreShown(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relabel.yml")
	require.NoError(t, os.WriteFile(file, []byte("- action: labeldrop\n  regex: secret\n"), 0o600))
	r := startServe(t, "--storage.path="+t.TempDir(), "--write.relabel-file="+file, "--web.enable-lifecycle")
	get := func(r running, path string, into any) {
		code, text := r.Get(t, path)
		require.Equal(t, http.StatusOK, code, text)
		require.NoError(t, json.Unmarshal([]byte(text), into))
	}
	info := func() (ok bool, last time.Time) {
		var answer struct {
			Data struct {
				ReloadConfigSuccess bool
				LastConfigTime      time.Time
			}
		}
		get(r, "/api/v1/status/runtimeinfo", &answer)
		return answer.Data.ReloadConfigSuccess, answer.Data.LastConfigTime
	}
	reload := func(want int) {
		answer, err := http.Post(r.URL+"/-/reload", "", nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode)
	}
	ok, started := info()
	require.True(t, ok)
	reload(http.StatusOK)
	ok, first := info()
	require.True(t, ok)
	require.True(t, first.After(started))

	require.NoError(t, os.WriteFile(file, []byte("- action: nothing\n"), 0o600))
	reload(http.StatusInternalServerError)
	ok, last := info()
	require.False(t, ok)
	require.Equal(t, first, last)

	var features struct {
		Data map[string]map[string]bool
	}
	get(r, "/api/v1/features", &features)
	require.True(t, features.Data["api"]["lifecycle"])
	other := startServe(t, "--storage.path="+t.TempDir())
	get(other, "/api/v1/features", &features)
	require.False(t, features.Data["api"]["lifecycle"])
}

// TestEmptyFilesAreLogged checks that a warning is logged if a reloaded file has become empty, as after an interrupted
// copy.
func TestEmptyFilesAreLogged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limits := filepath.Join(dir, "limits.yml")
	relabel, rules := filepath.Join(dir, "relabel.yml"), filepath.Join(dir, "rules.yml")
	require.NoError(t, os.WriteFile(limits, []byte("defaults: {queries: 3}\n"), 0o600))
	require.NoError(t, os.WriteFile(relabel, []byte("- action: labeldrop\n  regex: secret\n"), 0o600))
	require.NoError(
		t, os.WriteFile(rules, []byte("groups: [{name: a, rules: [{record: b, expr: vector(1)}]}]\n"), 0o600),
	)
	r := startServe(t, "--storage.path="+filepath.Join(dir, "data"), "--web.enable-lifecycle", "--limits.file="+limits,
		"--write.relabel-file="+relabel, "--rule.files="+rules)
	for _, file := range []string{limits, relabel, rules} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	answer, err := http.Post(r.URL+"/-/reload", "", nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.NoError(t, r.stop())
	for _, file := range []string{limits, relabel, rules} {
		require.Regexp(t, `level=WARN msg="[^"]* contains no (limits|rules)[^"]*"[^\n]* file=`+regexp.QuoteMeta(file),
			r.log.String())
	}
}
