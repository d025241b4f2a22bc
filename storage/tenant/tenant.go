// Package tenant identifies the tenant of a request and enforces its limits. The HTTP server adds the tenant to the
// context with NewContext. Packages adapter, promql and storage read the tenant with FromContext or NamesFromContext,
// and call a Limiter. A tenant in a context must have passed CheckName, because names are stored in keys and compared
// as bytes.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Default is the tenant of a request without the header.
const Default = "default"

// Header is the request header that names the tenant, as in Mimir and Cortex.
const Header = "X-Scope-OrgID"

// MaxLen is the max length of a tenant's name in bytes.
const MaxLen = 150

// ErrInvalid means that a tenant's name is invalid.
var ErrInvalid = errors.New("invalid name")

type contextKey struct{}

// NewContext returns a context with the tenant.
func NewContext(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, contextKey{}, name)
}

// FromContext returns the tenant of ctx, or Default.
func FromContext(ctx context.Context) string {
	if name, ok := ctx.Value(contextKey{}).(string); ok {
		return name
	}
	return Default
}

// CheckName returns an error if name is not a valid tenant name. A valid name consists of letters, digits and !-_.*'(),
// has up to MaxLen bytes, and isn't "." or "..".
func CheckName(name string) error {
	if name == "" || len(name) > MaxLen {
		return fmt.Errorf("%w: has %d bytes; must have 1 to %d", ErrInvalid, len(name), MaxLen)
	}
	if name == "." || name == ".." {
		return fmt.Errorf("%w: %q", ErrInvalid, name)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '!', c == '-', c == '_', c == '.', c == '*', c == '\'', c == '(', c == ')':
		default:
			return fmt.Errorf("%w: %q contains %q; allowed are letters, digits and !-_.*'()", ErrInvalid, name, c)
		}
	}
	return nil
}

// listSeparator separates the names of tenants in a read request for multiple tenants.
const listSeparator = "|"

// NamesFromContext returns the tenants of ctx. If a read request is permitted to read multiple tenants, the tenant in
// its context may be a list such as a|b. Otherwise NamesFromContext returns one tenant.
func NamesFromContext(ctx context.Context) []string {
	return strings.Split(FromContext(ctx), listSeparator)
}
