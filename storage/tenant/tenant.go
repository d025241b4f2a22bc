// Package tenant identifies the tenant of a request, and holds that tenant's limits.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Default is the tenant of a request that names none.
const Default = "default"

// Header carries the tenant in a request, as in Mimir and Cortex.
const Header = "X-Scope-OrgID"

// MaxLen is the greatest length of a tenant's name, bytes.
const MaxLen = 150

// ErrInvalid means that a tenant's name can't be used.
var ErrInvalid = errors.New("invalid name")

type contextKey struct{}

// Into returns a context that carries the tenant.
func Into(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, contextKey{}, name)
}

// From returns the tenant that ctx carries, or Default.
func From(ctx context.Context) string {
	if name, ok := ctx.Value(contextKey{}).(string); ok {
		return name
	}
	return Default
}

// Check returns an error if name can't name a tenant: letters, digits and !-_.*'() are allowed, up to MaxLen bytes,
// but neither "." nor "..".
func Check(name string) error {
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

// listSeparator stands between the names of a request that reads of several tenants.
const listSeparator = "|"

// All returns the tenants that ctx carries: usually one, and several where a request that reads named a list, as a|b, and
// was allowed to.
func All(ctx context.Context) []string { return strings.Split(From(ctx), listSeparator) }
