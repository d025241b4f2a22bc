package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/tenant"
)

// door decides who may go where: whether a request may use a route, and which tenant it belongs to.
type door struct {
	// federation lets reads name several tenants, as a|b.
	federation bool
}

// Errors of a request's tenant. What they wrap says the rest.
var (
	// ErrTenant says that a request names its tenant in a way that can't be: 400.
	ErrTenant = errors.New("server: tenant")
	// ErrForbidden says that whoever sent the request may not do that: 403.
	ErrForbidden = errors.New("server: forbidden")
)

// guard puts the door before a route.
func (d *door) guard(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !route.Tenant {
			if _, prefixed := prefixOf(r.Context()); prefixed {
				http.NotFound(w, r) // It is about the whole process.
				return
			}
			route.Handler.ServeHTTP(w, r)
			return
		}
		name, named, err := d.tenantOf(route.Role, r)
		switch {
		case errors.Is(err, ErrForbidden):
			refuse(w, http.StatusForbidden, "forbidden", plain(err))
			return
		case err != nil:
			refuse(w, http.StatusBadRequest, "bad_data", plain(err))
			return
		}
		ctx := r.Context()
		if named {
			ctx = tenant.Into(ctx, name)
		}
		route.Handler.ServeHTTP(w, r.WithContext(context.WithValue(ctx, admittedKey{}, admitted{name, named})))
	})
}

// plain leaves out the name of the package, which means nothing to who asked.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "server: ") }

// tenantOf returns the tenant of a request, and whether the request names it itself: in its path, in its header,
// or in both, when these must be the same.
func (d *door) tenantOf(role Role, r *http.Request) (name string, named bool, err error) {
	names := r.Header.Values(tenant.Header)
	prefix, prefixed := prefixOf(r.Context())
	switch {
	case len(names) > 1:
		return "", false, fmt.Errorf("%w: header %s: there are %d of them", ErrTenant, tenant.Header, len(names))
	case len(names) == 1:
		if name, err = d.check(role, names[0]); err != nil {
			return "", false, fmt.Errorf("%w: header %s: %w", ErrTenant, tenant.Header, err)
		}
	case !prefixed:
		return tenant.Default, false, nil
	}
	if prefixed {
		fromPath, err := d.check(role, prefix)
		if err != nil {
			return "", false, fmt.Errorf("%w: path /t/%s/: %w", ErrTenant, url.PathEscape(prefix), err)
		}
		if len(names) == 1 && fromPath != name {
			return "", false, fmt.Errorf("%w: the path says %s, the header %s says %s", ErrTenant, fromPath, tenant.Header, name)
		}
		name = fromPath
	}
	return name, true, nil
}

// maxTenants bounds the tenants of one query.
const maxTenants = 64

// check returns the tenant that is named, or the tenants of a list a|b: each once, in order.
func (d *door) check(role Role, name string) (string, error) {
	if !d.federation || role != Read || !strings.Contains(name, "|") {
		return name, tenant.Check(name)
	}
	list := strings.Split(name, "|")
	if len(list) > maxTenants {
		return "", fmt.Errorf("%w: a list of %d, at most %d can be", tenant.ErrInvalid, len(list), maxTenants)
	}
	for _, one := range list {
		if err := tenant.Check(one); err != nil {
			return "", err
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), "|"), nil
}

type (
	prefixKey   struct{}
	admittedKey struct{}
)

// admitted is what the door found out about a request that it let in.
type admitted struct {
	tenant string
	// named says that the request itself names its tenant.
	named bool
}

// TenantFor returns the tenant for a request whose body or parameters name one, too, where asked may be empty:
// that of the path or header, which must be the same; or else the one that is asked for. ctx is that of a request
// that the door let in. The errors wrap ErrTenant or ErrForbidden.
func TenantFor(ctx context.Context, asked string) (string, error) {
	a, _ := ctx.Value(admittedKey{}).(admitted)
	if asked == "" || asked == a.tenant {
		return tenant.From(ctx), nil
	}
	if err := tenant.Check(asked); err != nil {
		return "", fmt.Errorf("%w: %w", ErrTenant, err)
	}
	if a.named {
		return "", fmt.Errorf("%w: the path or the header %s says %s, the request itself says %s", ErrTenant, tenant.Header, a.tenant, asked)
	}
	return asked, nil
}

// prefixOf returns the tenant that a request's path began with, as it stood there.
func prefixOf(ctx context.Context) (string, bool) {
	name, ok := ctx.Value(prefixKey{}).(string)
	return name, ok
}

// prefixed takes /t/{tenant} off a path and remembers the tenant.
func prefixed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, twice := prefixOf(r.Context()); twice {
			http.NotFound(w, r)
			return
		}
		_, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/t/"), "/")
		path, err := url.PathUnescape("/" + rest)
		if err != nil {
			refuse(w, http.StatusBadRequest, "bad_data", err.Error())
			return
		}
		inner := r.Clone(context.WithValue(r.Context(), prefixKey{}, r.PathValue("tenant")))
		inner.URL.Path, inner.URL.RawPath = path, "/"+rest
		next.ServeHTTP(w, inner)
	})
}
