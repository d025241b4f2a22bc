package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

var (
	// ErrUnknown means that a request has missing or wrong credentials.
	ErrUnknown = errors.New("not authenticated")
	// ErrBusy means that too many passwords are waiting to be checked.
	ErrBusy = errors.New("too many passwords are being checked; try again")
)

// User is a user of the server.
type User struct {
	name                                       string
	password                                   string // bcrypt hash, or empty
	canRead, canWrite, canReadMetrics, isAdmin bool
	tenants                                    map[string]bool
	hasAllTenants                              bool
	usual                                      string
}

// Name returns the user's name in the file.
func (u *User) Name() string { return u.name }

// CanRead, CanWrite, CanReadMetrics and IsAdmin report the user's roles. An admin has all of them.
func (u *User) CanRead() bool        { return u.canRead }
func (u *User) CanWrite() bool       { return u.canWrite }
func (u *User) CanReadMetrics() bool { return u.canReadMetrics }
func (u *User) IsAdmin() bool        { return u.isAdmin }

// CanUse reports whether the user may use a tenant.
func (u *User) CanUse(tenant string) bool { return u.hasAllTenants || u.tenants[tenant] }

// Tenants returns the tenants that the user may use, sorted. all means that the user may use any tenant.
func (u *User) Tenants() (names []string, all bool) {
	return slices.Sorted(maps.Keys(u.tenants)), u.hasAllTenants
}

// Tenant returns the default tenant, for requests that don't name a tenant. If it is empty, each request must name one.
func (u *User) Tenant() string { return u.usual }

// Guard identifies the users who send requests. Its methods are safe for concurrent use.
type Guard struct {
	file      string
	users     atomic.Pointer[users]
	passwords *passwordChecker
}

// Open reads a file of users. Its error contains the cause, but no secret.
func Open(file string) (*Guard, error) {
	g := &Guard{file: file, passwords: newPasswords()}
	if err := g.Reload(); err != nil {
		return nil, err
	}
	return g, nil
}

// OfHashes returns a guard without a file, whose users have only a password. hashes contains the bcrypt hashes by user
// name.
func OfHashes(hashes map[string]string) (*Guard, error) {
	all := &users{byName: map[string]*User{}}
	for name, hash := range hashes {
		u := &User{name: name}
		if err := all.addSecrets(u, &fileUser{Password: hash}); err != nil {
			return nil, fmt.Errorf("user %q: %w", name, err)
		}
		all.byName[name] = u
	}
	g := &Guard{passwords: newPasswords()}
	g.users.Store(all)
	return g, nil
}

// Reload reads the file again. If it fails, the previous users stay in effect.
func (g *Guard) Reload() error {
	all, err := readFile(g.file)
	if err != nil {
		return fmt.Errorf("--auth.file=%s: %w", g.file, err)
	}
	g.users.Store(all)
	return nil
}

// Identify returns the user who sent a request. The error is ErrUnknown or ErrBusy, or wraps one of them, or is the
// error of the request's context. A request with a wrong password or token is rejected, even if it has a valid
// certificate.
func (g *Guard) Identify(r *http.Request) (*User, error) {
	all := g.users.Load()
	shown := r.Header.Values("Authorization")
	switch {
	case len(shown) > 1:
		return nil, fmt.Errorf("%w: the request has %d Authorization headers", ErrUnknown, len(shown))
	case len(shown) == 0:
		return all.ofCertificate(r)
	}
	if name, password, ok := r.BasicAuth(); ok {
		return g.ofPassword(r.Context(), all, r.RemoteAddr, name, password)
	}
	if scheme, token, _ := strings.Cut(shown[0], " "); strings.EqualFold(scheme, "Bearer") {
		return all.ofToken(strings.Trim(token, " "))
	}
	return nil, fmt.Errorf("%w: the Authorization header is neither Basic nor Bearer", ErrUnknown)
}

// nobodyOf returns a hash to check for unknown users, so that the duration of a check doesn't reveal whether a user
// exists.
func nobodyOf(cost int) string {
	return fmt.Sprintf("$2a$%02d$......................8mAz4kuCVu8bvxqmeJYXXqQ.vzhnEQe", cost)
}

func (g *Guard) ofPassword(ctx context.Context, all *users, remote, name, password string) (*User, error) {
	u := all.byName[name]
	hash := nobodyOf(all.cost)
	known := u != nil && u.password != ""
	if known {
		hash = u.password
	}
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ok, err := g.passwords.checkPassword(ctx, host, hash, password)
	switch {
	case err != nil:
		return nil, err
	case !ok || !known:
		return nil, fmt.Errorf("%w: wrong user or password", ErrUnknown)
	}
	return u, nil
}

// ofToken returns the user with a token. The lookup by hash doesn't take constant time, but its timing could reveal
// only parts of the hash, not of the token. The final comparison takes constant time.
func (all *users) ofToken(token string) (*User, error) {
	digest := sha256.Sum256([]byte(token))
	var found *User
	for key, u := range all.byToken {
		if subtle.ConstantTimeCompare(key[:], digest[:]) == 1 {
			found = u
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: wrong token", ErrUnknown)
	}
	return found, nil
}

// ofCertificate returns the user whose certificate names include a name in the verified client certificate.
func (all *users) ofCertificate(r *http.Request) (*User, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, fmt.Errorf("%w: send a password, a token or a client certificate", ErrUnknown)
	}
	names := namesOf(r.TLS.VerifiedChains[0][0])
	var found *User
	for _, name := range names {
		switch u := all.byCertificate[name]; {
		case u == nil:
		case found != nil && found != u:
			return nil, fmt.Errorf("%w: the names in the client certificate belong to more than one user", ErrUnknown)
		default:
			found = u
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: no name in the client certificate belongs to a user", ErrUnknown)
	}
	return found, nil
}

// subjectAltName is the identifier of the extension that contains the names of a certificate.
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// namesOf returns the DNS names of a certificate, or its common name if the certificate has no alternative names of any
// kind. TLS clients verify servers in the same way.
func namesOf(c *x509.Certificate) []string {
	if slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(subjectAltName) }) {
		return c.DNSNames
	}
	return []string{c.Subject.CommonName}
}
