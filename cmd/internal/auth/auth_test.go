package auth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"math/big"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// bcryptOf returns a hash of a password with the lowest cost.
func bcryptOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	return string(hash)
}

func sha256Of(token string) string {
	digest := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(digest[:])
}

func open(t *testing.T, text string) *Guard {
	t.Helper()
	file := filepath.Join(t.TempDir(), "auth.yml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	g, err := Open(file)
	require.NoError(t, err)
	return g
}

// credentials holds the credentials that a request contains.
type credentials struct {
	user, password string
	headers        []string
	certificate    *x509.Certificate
	isUnverified   bool
}

func (g *Guard) identify(s credentials) (string, error) {
	r := httptest.NewRequest("GET", "/", nil)
	if s.user != "" {
		r.SetBasicAuth(s.user, s.password)
	}
	for _, h := range s.headers {
		r.Header.Add("Authorization", h)
	}
	if s.certificate != nil {
		leaf := parseCertificate(s.certificate)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
		if !s.isUnverified {
			r.TLS.VerifiedChains = [][]*x509.Certificate{{leaf}}
		}
	}
	u, err := g.Identify(r)
	if err != nil {
		return "", err
	}
	return u.Name(), nil
}

// parseCertificate returns a certificate in the form in which a TLS connection provides it.
func parseCertificate(template *x509.Certificate) *x509.Certificate {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	template.SerialNumber = big.NewInt(1)
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return leaf
}

func TestIdentify(t *testing.T) {
	g := open(t, "users:\n"+
		"- {name: ada, password: "+bcryptOf(t, "swordfish")+", roles: [read], tenants: [a]}\n"+
		"- {name: bob, tokens: ['"+sha256Of("token-1")+"', '"+sha256Of("token-2")+
		"'], certificates: [bob.example.org, 'spiffe://x/bob'], roles: [write], tenants: '*'}\n"+
		"- {name: eve, certificates: [eve@example.org, eve.example.org], roles: [write], tenants: [a]}\n")
	for about, c := range map[string]struct {
		credentials
		want string
	}{
		"password":              {credentials{user: "ada", password: "swordfish"}, "ada"},
		"wrong password":        {credentials{user: "ada", password: "Swordfish"}, ""},
		"no such user":          {credentials{user: "adam", password: "swordfish"}, ""},
		"user without password": {credentials{user: "bob", password: ""}, ""},
		"token":                 {credentials{headers: []string{"Bearer token-1"}}, "bob"},
		"another token":         {credentials{headers: []string{"bearer  token-2"}}, "bob"},
		"wrong token":           {credentials{headers: []string{"Bearer token-3"}}, ""},
		"its hash":              {credentials{headers: []string{"Bearer " + sha256Of("token-1")}}, ""},
		"empty token":           {credentials{headers: []string{"Bearer"}}, ""},
		"another scheme":        {credentials{headers: []string{"Digest x"}}, ""},
		"broken basic":          {credentials{headers: []string{"Basic !!!"}}, ""},
		"two headers":           {credentials{headers: []string{"Bearer token-1", "Bearer token-2"}}, ""},
		"nothing":               {credentials{}, ""},
		"common name":           {credentials{certificate: &x509.Certificate{Subject: pkix.Name{CommonName: "bob.example.org"}}}, "bob"},
		"DNS name":              {credentials{certificate: &x509.Certificate{DNSNames: []string{"x", "bob.example.org"}}}, "bob"},
		"URI":                   {credentials{certificate: &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "x", Path: "/bob"}}}}, ""},
		"mail address":          {credentials{certificate: &x509.Certificate{EmailAddresses: []string{"eve@example.org"}}}, ""},
		"common name beside a DNS name": {credentials{certificate: &x509.Certificate{
			Subject: pkix.Name{CommonName: "bob.example.org"}, DNSNames: []string{"x"}}}, ""},
		"common name beside an address": {credentials{certificate: &x509.Certificate{
			Subject: pkix.Name{CommonName: "bob.example.org"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}}, ""},
		"common name beside a name of a kind that isn't known": {credentials{certificate: &x509.Certificate{Subject: pkix.Name{CommonName: "bob.example.org"},
			ExtraExtensions: []pkix.Extension{
				{Id: subjectAltName, Value: []byte{0x30, 0x08, 0xa0, 0x06, 0x06, 0x01, 0x2a, 0xa0, 0x01, 0x00}},
			}}}, ""},
		"unknown certificate": {credentials{certificate: &x509.Certificate{DNSNames: []string{"ada"}}}, ""},
		"names of two":        {credentials{certificate: &x509.Certificate{DNSNames: []string{"bob.example.org", "eve.example.org"}}}, ""},
		"not verified":        {credentials{certificate: &x509.Certificate{DNSNames: []string{"bob.example.org"}}, isUnverified: true}, ""},
		"wrong token, right certificate": {credentials{headers: []string{"Bearer x"},
			certificate: &x509.Certificate{DNSNames: []string{"bob.example.org"}}}, ""},
	} {
		got, err := g.identify(c.credentials)
		require.Equal(t, c.want, got, about)
		if c.want == "" {
			require.ErrorIs(t, err, ErrUnknown, about)
			require.NotContains(t, err.Error(), "ordfish", about)
			require.NotContains(t, err.Error(), "token-", about)
		}
	}
}

func TestTheHashOfNobodyIsChecked(t *testing.T) {
	all, err := parse([]byte("users: [{name: a, password: '" + bcryptOf(t, "x") + "', roles: [read], tenants: [a]}]"))
	require.NoError(t, err)
	require.Equal(t, bcrypt.DefaultCost, all.cost)
	hash := nobodyOf(12)
	require.Len(t, hash, 60)
	cost, err := bcrypt.Cost([]byte(hash))
	require.NoError(t, err)
	require.Equal(t, 12, cost)
	require.ErrorIs(t, bcrypt.CompareHashAndPassword([]byte(nobodyOf(bcrypt.MinCost)), []byte("x")),
		bcrypt.ErrMismatchedHashAndPassword)
}

func TestReload(t *testing.T) {
	g := open(t, "users: [{name: a, tokens: ['"+sha256Of("one")+"'], roles: [read], tenants: [a]}]")
	require.NoError(t, os.WriteFile(g.file, []byte("users: [{name: a}]"), 0o600))
	require.EqualError(t, g.Reload(),
		"--auth.file="+g.file+`: user "a": password, tokens or certificates are missing; set at least one of them`)
	_, err := g.identify(credentials{headers: []string{"Bearer one"}})
	require.NoError(t, err, "the old users stay")
	require.NoError(t, os.WriteFile(
		g.file, []byte("users: [{name: a, tokens: ['"+sha256Of("two")+"'], roles: [read], tenants: [a]}]"), 0o600,
	))
	require.NoError(t, g.Reload())
	_, err = g.identify(credentials{headers: []string{"Bearer one"}})
	require.ErrorIs(t, err, ErrUnknown)
	_, err = g.identify(credentials{headers: []string{"Bearer two"}})
	require.NoError(t, err)
	_, err = Open("/no/such/file")
	require.EqualError(t, err, "--auth.file=/no/such/file: no such file or directory")
}

func TestRolesAndTenants(t *testing.T) {
	all, err := parse([]byte(`users:
- {name: one, certificates: [c1], roles: [read], tenants: [a]}
- {name: two, certificates: [c2], roles: [write], tenants: [a, b]}
- {name: usual, certificates: [c3], roles: [read, write], tenants: [a, default]}
- {name: all, certificates: [c4], roles: [read], tenants: "*", default_tenant: z}
- {name: admin, certificates: [c5], roles: [admin]}
- {name: watch, certificates: [c6], roles: [metrics]}
`))
	require.NoError(t, err)
	for name, want := range map[string]struct {
		read, write, metrics, admin, a, z bool
		usual                             string
	}{
		"one":   {read: true, a: true, usual: "a"},
		"two":   {write: true, a: true},
		"usual": {read: true, write: true, a: true, usual: "default"},
		"all":   {read: true, a: true, z: true, usual: "z"},
		"admin": {read: true, write: true, metrics: true, admin: true},
		"watch": {metrics: true},
	} {
		u := all.byName[name]
		require.Equal(t, []bool{want.read, want.write, want.metrics, want.admin, want.a, want.z},
			[]bool{u.CanRead(), u.CanWrite(), u.CanReadMetrics(), u.IsAdmin(), u.CanUse("a"), u.CanUse("z")}, name)
		require.Equal(t, want.usual, u.Tenant(), name)
	}
}
