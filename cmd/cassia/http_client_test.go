package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServerFlags checks the credentials and headers that a server receives with each method of logging in.
func TestServerFlags(t *testing.T) {
	var shown http.Header
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		shown = r.Header.Clone()
	}))
	t.Cleanup(web.Close)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"secret":    " s3cret\n",
		"user.yaml": "basic_auth: {username: u, password_file: secret}",
		"token.yml": "authorization: {credentials_file: secret}\nhttp_headers: {X-Scope-OrgID: {values: [a]}}",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	withUser := strings.Replace(web.URL, "//", "//u:s3cret@", 1)
	require.Equal(t, web.URL, withoutUser(withUser))
	for _, c := range []struct {
		file, url   string
		headers     []string
		auth, scope string
	}{
		{"", web.URL, nil, "", ""},
		{"", withUser, nil, "Basic dTpzM2NyZXQ=", ""},
		{"user.yaml", web.URL, []string{"x-scope-orgid:b"}, "Basic dTpzM2NyZXQ=", "b"},
		{"token.yml", web.URL, nil, "Bearer s3cret", "a"},
	} {
		if c.file != "" {
			c.file = filepath.Join(dir, c.file)
		}
		flags := &serverFlags{login: &httpConfig{"http.config.file", c.file}, headers: c.headers}
		client, err := flags.newClient(c.url)
		require.NoError(t, err)
		answer, err := client.Do(t.Context(), http.MethodGet, client.URL, nil, nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, []string{c.auth, c.scope, "cassia"},
			[]string{shown.Get("Authorization"), shown.Get("X-Scope-OrgID"), shown.Get("User-Agent")}, "%s %s", c.file,
			c.url)
		require.Empty(t, client.URL.User)
	}
}

// TestHTTPConfigFile checks that errors in the file are reported before any request is sent, and that they never
// contain a password.
func TestHTTPConfigFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "http.yaml")
	for text, want := range map[string]string{
		"basic_auth: {user: u}": "line 1: unknown key user",
		"basic_auth: [":         "yaml: line 1: did not find",
		"basic_auth: {username: u, password_file: none}":                  "basic_auth: password_file: open " + filepath.Join(filepath.Dir(file), "none") + ": no such file",
		"authorization: {credentials_file: none}":                         "authorization: credentials_file: open ",
		"tls_config: {ca_file: none}":                                     "none: no such file",
		"basic_auth: {username: u}\nauthorization: {credentials: s3cret}": "at most one of basic_auth",
		"authorization: {credentials: s3cret}":                            "the URL also has a user; use only one way to log in",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, flag := range []string{"http.config.file", "url.http.config.file"} {
			_, err := (&httpConfig{flag, file}).newClient("http://u:pw1234@localhost:1")
			require.ErrorContains(t, err, "--"+flag+"="+file+": ")
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "s3cret")
			require.NotContains(t, err.Error(), "pw1234")
		}
	}
}
