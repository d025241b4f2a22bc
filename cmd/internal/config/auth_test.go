package config

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	exampleLocks = "../../../examples/locks/"
	passwordHash = "$2a$04$012345678901234567890u012345678901234567890123456789."
)

// writeFile writes a temporary file and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestExampleOfUsers checks that the example of a file of users is valid and that its hashes match its passwords.
func TestExampleOfUsers(t *testing.T) {
	c, err := parse(t, "--auth.file="+exampleLocks+"auth.yml")
	require.NoError(t, err)
	for name, password := range map[string]string{"grafana": "grafana-password", "ops": "ops-password"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth(name, password)
		u, err := c.Auth.Identify(r)
		require.NoError(t, err, name)
		require.Equal(t, name, u.Name())
	}
	for name, token := range map[string]string{"prometheus-a": "prometheus-token", "scraper": "scrape-token"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		u, err := c.Auth.Identify(r)
		require.NoError(t, err, name)
		require.Equal(t, name, u.Name())
	}
}

func TestLocksThatDontFit(t *testing.T) {
	users := writeFile(t, "web.yml", "basic_auth_users: {a: "+passwordHash+"}\n")
	_, err := parse(t, "--auth.file="+exampleLocks+"auth.yml", "--web.config.file="+users)
	require.EqualError(t, err, "--web.config.file="+users+
		": basic_auth_users can't be used together with --auth.file; move the users to that file")
	_, err = parse(t, "--auth.file=/no/such/file")
	require.EqualError(t, err, "--auth.file=/no/such/file: no such file or directory")
}

func TestWarnings(t *testing.T) {
	users := "--web.config.file=" + writeFile(t, "users.yml", "basic_auth_users: {a: "+passwordHash+"}\n")
	auth := "--auth.file=" + exampleLocks + "auth.yml"
	const public, nobody, plain, admin = "--web.listen-address=:9201", "without authentication; set --auth.file, or listen on 127.0.0.1", "unencrypted", "all tenants"
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--web.listen-address=127.0.0.1:9201"}, nil},
		{[]string{"--web.listen-address=127.0.0.1:9201", auth}, nil},
		{[]string{public}, []string{nobody}},
		{[]string{"--web.listen-address=127.0.0.1:9201", "--web.listen-address=10.0.0.1:9201"}, []string{nobody}},
		{[]string{public, users}, []string{plain}},
		{[]string{public, auth}, []string{plain}},
		{[]string{public, auth, "--web.enable-admin-api"}, []string{plain}},
		{[]string{"--web.listen-address=127.0.0.1:9201", "--storage.head-bytes=1TiB"}, []string{"--storage.head-bytes=1TiB and --storage.cache-bytes="}},
		{[]string{"--web.listen-address=127.0.0.1:9201", "--storage.head-bytes=1GiB"}, nil},
	} {
		conf, err := parse(t, c.args...)
		require.NoError(t, err)
		got := conf.Warnings()
		require.Len(t, got, len(c.want), c.args)
		for i, want := range c.want {
			require.Contains(t, got[i], want)
			require.NotContains(t, got[i], "127.0.0.1:9201", "only what others reach")
		}
	}
	files := map[string]string{"cert": "CERTIFICATE", "key": "PRIVATE KEY"}
	server := httptest.NewTLSServer(nil)
	own := server.TLS.Certificates[0]
	server.Close()
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	require.NoError(t, err)
	for name, der := range map[string][]byte{"cert": own.Certificate[0], "key": key} {
		files[name] = writeFile(t, name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: files[name], Bytes: der})))
	}
	certificate := "cert_file: " + files["cert"] + ", key_file: " + files["key"]
	for text, want := range map[string]string{
		"tls_server_config: {" + certificate + ", client_auth_type: VerifyClientCertIfGiven}":    nobody,
		"tls_server_config: {" + certificate + "}":                                               nobody,
		"tls_server_config: {" + certificate + ", client_auth_type: RequireAndVerifyClientCert}": admin,
		"tls_server_config: {" + certificate + "}\nbasic_auth_users: {a: " + passwordHash + "}":  admin,
	} {
		c := &Config{ListenAddresses: []string{":9201"}, AdminAPI: true, WebConfigFile: writeFile(t, "web.yml", text)}
		require.NoError(t, c.checkAuth())
		require.Len(t, c.Warnings(), 1, text)
		require.True(t, strings.Contains(c.Warnings()[0], want), "%s: %s", text, c.Warnings())
	}
}
