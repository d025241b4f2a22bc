package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/auth"
	"github.com/cassia-db/cassia/storage/tenant"
)

// withUsers adds an auth file with users for each role. The token of each user is the user's name.
func withUsers(t *testing.T, o Options) Options {
	t.Helper()
	text := "users:\n"
	for name, rest := range map[string]string{
		"reader": "roles: [read], tenants: [a, b], default_tenant: a", "writer": "roles: [write], tenants: [a]",
		"watcher": "roles: [metrics]", "admin": "roles: [admin], tenants: '*'",
		"undecided": "roles: [read, write], tenants: [a, b]",
	} {
		digest := sha256.Sum256([]byte(name))
		text += "- {name: " + name + ", tokens: ['sha256:" + hex.EncodeToString(digest[:]) + "'], " + rest + "}\n"
	}
	file := filepath.Join(t.TempDir(), "auth.yml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	guard, err := auth.Open(file)
	require.NoError(t, err)
	o.Auth = guard
	return o
}

func TestEveryRouteWantsItsRole(t *testing.T) {
	o := withUsers(t, testOptions())
	o.AdminAPI = true
	o.Reload = func() error { return nil }
	h := NewHandler(o)
	const nobody = ""
	for _, c := range []struct {
		method, path string
		may          []string
	}{
		{"POST", "/api/v1/write", []string{"writer", "admin"}},
		{"GET", "/api/v1/query", []string{"reader", "admin"}},
		{"POST", "/api/v1/read", []string{"reader", "admin"}},
		{"GET", "/api/v1/status/tsdb", []string{"reader", "admin"}},
		{"GET", "/api/v1/status/buildinfo", []string{"reader", "admin"}},
		{"GET", "/api/v1/status/flags", []string{"admin"}},
		{"GET", "/api/v1/status/config", []string{"admin"}},
		{"GET", "/api/v1/status/runtimeinfo", []string{"admin"}},
		{"POST", "/api/v1/admin/tsdb/delete_series", []string{"admin"}},
		{"POST", "/api/v1/admin%2Ftsdb%2Fdelete_series", []string{"admin"}},
		{"POST", "/api/v1/%61dmin/tsdb/delete_series", []string{"admin"}},
		{"GET", "/api/v1/status%2Fflags", []string{"admin"}},
		{"GET", "/t/a%2F..%2F..%2Fapi/v1/status/flags", nil},
		{"PUT", "/api/v1/admin/tsdb/clean_tombstones", []string{"admin"}},
		{"GET", "/t/a/api/v1/query", []string{"reader", "undecided", "admin"}},
		{"POST", "/t/a/api/v1/write", []string{"writer", "undecided", "admin"}},
		{"POST", "/-/seal", []string{"admin"}},
		{"POST", "/-/reload", []string{"admin"}},
		{"GET", "/-/downsample", []string{"admin"}},
		{"GET", "/debug/pprof/", []string{"admin"}},
		{"GET", "/debug/pprof/cmdline", []string{"admin"}},
		{"GET", "/metrics", []string{"watcher", "admin"}},
		{"GET", "/-/healthy", []string{nobody, "reader", "writer", "watcher", "admin"}},
		{"GET", "/-/ready", []string{nobody, "reader", "writer", "watcher", "admin"}},
		{"OPTIONS", "/api/v1/query", []string{nobody, "reader"}},
	} {
		for _, user := range []string{nobody, "reader", "writer", "watcher", "admin", "undecided", "stranger"} {
			want := http.StatusForbidden
			switch {
			case slices.Contains(c.may, user), slices.Contains(c.may, nobody):
				want = http.StatusOK
			case user == "undecided" &&
				(c.path == "/api/v1/query" || c.path == "/api/v1/read" || c.path == "/api/v1/write" ||
					c.path == "/api/v1/status/tsdb" || c.path == "/api/v1/status/buildinfo"):
				want = http.StatusBadRequest
			case user == nobody, user == "stranger":
				want = http.StatusUnauthorized
			}
			if c.may == nil { // The path isn't clean, so the request is redirected.
				want = http.StatusTemporaryRedirect
			}
			var header []string
			if user != nobody {
				header = []string{"Authorization", "Bearer " + user}
			}
			w := serveRequest(h, c.method, c.path, header...)
			require.Equal(t, want, w.Code, "%s %s by %q: %s", c.method, c.path, user, w.Body)
			switch want {
			case http.StatusUnauthorized:
				require.Len(t, w.Header().Values("WWW-Authenticate"), 2)
				require.NotContains(t, w.Body.String(), "stranger")
			case http.StatusForbidden:
				require.Contains(t, w.Body.String(), `user \"`+user+`\" doesn't have the role `)
			case http.StatusBadRequest:
				require.Contains(t, w.Body.String(), "name the tenant in the header X-Scope-OrgID")
			}
		}
	}
}

// TestPasswordsThatThePageAsksFor checks that rejected requests of the page's script get no challenge, so that the
// browser doesn't open its own login dialog.
func TestPasswordsThatThePageAsksFor(t *testing.T) {
	var who string
	o := testOptions()
	o.Routes = []Route{
		{Path: "/who", Role: Read, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if u := UserOf(r.Context()); u != nil {
				who = u.Name()
			}
		})},
	}
	require.Equal(t, http.StatusOK, serveRequest(NewHandler(o), "GET", "/who").Code)
	require.Empty(t, who, "nobody is asked")

	h := NewHandler(withUsers(t, o))
	w := serveRequest(h, "GET", "/who", "X-Requested-With", "cassia")
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Equal(t, []string{`Bearer realm="cassia"`}, w.Header().Values("WWW-Authenticate"))
	require.Equal(
		t, http.StatusOK,
		serveRequest(h, "GET", "/who", "X-Requested-With", "cassia", "Authorization", "Bearer reader").Code,
	)
	require.Equal(t, "reader", who)
}

func TestTenantOfAUser(t *testing.T) {
	o := withUsers(t, testOptions())
	o.Federation = true
	o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := UserOf(r.Context())
		if who == nil || r.Header.Get("Authorization") != "" {
			panic("the handler must know who it is, and no password")
		}
		_, _ = io.WriteString(w, tenant.FromContext(r.Context())+" for "+who.Name())
	})
	h := NewHandler(o)
	for _, c := range []struct {
		user, path, header string
		code               int
		want               string
	}{
		{"reader", "/api/v1/query", "", 200, "a for reader"},
		{"reader", "/api/v1/query", "b", 200, "b for reader"},
		{"reader", "/t/b/api/v1/query", "", 200, "b for reader"},
		{"reader", "/api/v1/query", "b|a", 200, "a|b for reader"},
		{"reader", "/api/v1/query", "c", 403, `user \"reader\" may not use tenant \"c\"`},
		{"reader", "/api/v1/query", "default", 403, `user \"reader\" may not use tenant \"default\"`},
		{"reader", "/api/v1/query", "a|c|b", 403, `user \"reader\" may not use tenant \"c\"`},
		{"reader", "/t/c/api/v1/query", "", 403, `user \"reader\" may not use tenant \"c\"`},
		{"reader", "/t/c/api/v1/query", "a", 400, "the path names c, but the header X-Scope-OrgID names a"},
		{"admin", "/api/v1/query", "", 200, "default for admin"},
		{"admin", "/api/v1/query", "x|y", 200, "x|y for admin"},
		{"undecided", "/api/v1/query", "", 400, "name the tenant in the header X-Scope-OrgID"},
		{"undecided", "/api/v1/query", "b", 200, "b for undecided"},
	} {
		header := []string{"Authorization", "Bearer " + c.user}
		if c.header != "" {
			header = append(header, tenant.Header, c.header)
		}
		w := serveRequest(h, http.MethodPost, c.path, header...)
		require.Equal(t, c.code, w.Code, c)
		require.Contains(t, w.Body.String(), c.want, c)
	}
}

// TestTenantThatABodyNames checks that a request is rejected if its body names a tenant that the user isn't allowed to
// use.
func TestTenantThatABodyNames(t *testing.T) {
	for _, c := range []struct {
		user, header, asked, want string
		err                       error
	}{
		{"undecided", "b", "b", "b", nil},
		{"undecided", "b", "a", "", errTenant},
		{"admin", "", "x", "x", nil},
		{"admin", "", "", "default", nil},
		{"writer", "", "b", "", ErrForbidden},
		{"writer", "", "default", "", ErrForbidden},
		{"writer", "", "a", "a", nil},
	} {
		o := withUsers(t, testOptions())
		var name string
		var err error
		o.Write = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			name, err = TenantFor(r.Context(), c.asked)
		})
		header := []string{"Authorization", "Bearer " + c.user}
		if c.header != "" {
			header = append(header, tenant.Header, c.header)
		}
		serveRequest(NewHandler(o), http.MethodPost, "/api/v1/write", header...)
		require.ErrorIs(t, err, c.err, c)
		require.Equal(t, c.want, name, c)
	}
}

func TestReloadOverHTTP(t *testing.T) {
	require.Equal(t, http.StatusForbidden, serveRequest(NewHandler(testOptions()), "POST", "/-/reload").Code)
	registry := prometheus.NewRegistry()
	files := NewReloaders(registry, quietLogger, now)
	var wrong error
	calls := 0
	files.Add("one", func() error { return wrong })
	files.Add("two", func() error { calls++; return nil })
	o := testOptions()
	o.Reload = files.Reload
	h := NewHandler(o)
	require.Equal(t, http.StatusMethodNotAllowed, serveRequest(h, "GET", "/-/reload").Code)
	require.Equal(t, http.StatusOK, serveRequest(h, "POST", "/-/reload").Code)
	wrong = errors.New("one is wrong")
	w := serveRequest(h, "PUT", "/-/reload")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, w.Body.String(), "one is wrong")
	require.Equal(t, 2, calls, "one wrong file doesn't keep the others from being read")
	require.Zero(t, testutil.ToFloat64(files.ok))
	require.EqualValues(t, now().Unix(), testutil.ToFloat64(files.success))
	wrong = nil
	require.NoError(t, files.Reload())
	require.EqualValues(t, 1, testutil.ToFloat64(files.ok))
}
