package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/cmd/internal/auth"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Authenticator identifies the user who sent a request.
type Authenticator interface {
	// Identify returns the user. Its error wraps auth.ErrUnknown or auth.ErrBusy, or is the error of the request's
	// context. It contains no secret.
	Identify(r *http.Request) (*auth.User, error)
}

// authorizer decides whether a request may use a route, and determines the request's tenant.
type authorizer struct {
	// auth identifies users. If it is nil, every client has all roles and all tenants.
	auth Authenticator
	// allowsFederation allows read requests to name multiple tenants, such as a|b.
	allowsFederation bool
	origins          originChecker
	bodies           bodyLimits
	// requests limits the number of requests in progress. watchers is a separate limit for /metrics.
	requests, watchers *requestLimiter
}

// Errors of authorization. They are wrapped by errors with the details.
var (
	// errTenant means that a request names an invalid tenant. The response has status 400.
	errTenant = errors.New("invalid tenant")
	// ErrForbidden means that the client may not send this request. The response has status 403.
	ErrForbidden = errors.New("forbidden")
)

// guardRoute returns a handler that authorizes each request before it calls the route's handler.
func (a *authorizer) guardRoute(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, prefixed := prefixOf(r.Context()); prefixed && !route.Tenant {
			http.NotFound(w, r) // The route applies to the whole process.
			return
		}
		if err := a.origins.checkOrigin(route, r); err != nil {
			rejectRequest(w, r, err)
			return
		}
		if route.Preflight && r.Method == http.MethodOptions {
			route.Handler.ServeHTTP(w, r)
			return
		}
		inner, err := a.authorizeRequest(route, r)
		if err != nil {
			rejectRequest(w, r, err)
			return
		}
		leave, err := a.enterRequest(route, inner)
		if err != nil {
			rejectRequest(w, r, err)
			return
		}
		defer leave()
		if route.Role == Write || route.OwnBounds { // The handler limits its bodies itself.
			route.Handler.ServeHTTP(w, inner)
			return
		}
		a.bodies.serveBounded(w, inner, route.Handler)
	})
}

// authorizeRequest authorizes a request and returns the request to pass to the route's handler. Its context contains
// the user and the tenant, and its Authorization header is removed.
func (a *authorizer) authorizeRequest(route Route, r *http.Request) (*http.Request, error) {
	var user *auth.User
	ctx := r.Context()
	if a.auth != nil && route.Role != Open {
		var err error
		if user, err = a.auth.Identify(r); err != nil {
			return nil, err
		}
		if !hasRole(user, route.Role) {
			return nil, fmt.Errorf("%w: user %q doesn't have the role %s", ErrForbidden, user.Name(), route.Role)
		}
		ctx = context.WithValue(ctx, userKey{}, user)
		r.Header.Del("Authorization")
	}
	if !route.Tenant {
		return r.WithContext(ctx), nil
	}
	name, named, err := a.tenantOf(route.Role, user, r)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(tenant.NewContext(ctx, name), admittedKey{}, authorization{name, named, user})
	return r.WithContext(ctx), nil
}

// enterRequest adds a request to the requests in progress. It returns an error if there are too many. Otherwise the
// caller must call leave after the request.
func (a *authorizer) enterRequest(route Route, r *http.Request) (leave func(), err error) {
	e := ExchangeOf(r)
	if e != nil && route.Role == Write {
		e.merit = meritWritten
	} else if e != nil && route.Role != Open {
		e.merit = meritAnswered
	}
	vital := isVital(strings.TrimPrefix(route.Path, "GET "))
	if vital && route.Role == Open {
		return func() {}, nil
	}
	client := clientOf(r.RemoteAddr)
	if user := UserOf(r.Context()); user != nil {
		client = "user " + user.Name() // No address has this form.
	}
	if vital {
		return a.watchers.enterRequest(client, e)
	}
	return a.requests.enterRequest(client, e)
}

func hasRole(u *auth.User, role Role) bool {
	switch role {
	case Open:
		return true
	case Read:
		return u.CanRead()
	case Write:
		return u.CanWrite()
	case Watch:
		return u.CanReadMetrics()
	}
	return u.IsAdmin()
}

// askedByScript is a header that the web page sends with its requests. If such a request is unauthenticated, it is
// rejected without a challenge, because the page has its own login form and a challenge would make the browser open a
// second one. Pages of other origins can't send this header without a preflight request.
const askedByScript = "X-Requested-With"

// rejectRequest sends the response for a request that isn't authorized.
func rejectRequest(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, auth.ErrUnknown):
		if r.Header.Get(askedByScript) == "" {
			w.Header().Add("WWW-Authenticate", `Basic realm="cassia", charset="UTF-8"`)
		}
		w.Header().Add("WWW-Authenticate", `Bearer realm="cassia"`)
		rejectAPI(w, http.StatusUnauthorized, "unauthorized", plainText(err))
	case errors.Is(err, auth.ErrBusy):
		w.Header().Set("Retry-After", "1")
		rejectAPI(w, http.StatusTooManyRequests, "unavailable", plainText(err))
	case errors.Is(err, errCrowded):
		w.Header().Set("Retry-After", "1")
		rejectAPI(w, http.StatusServiceUnavailable, "unavailable", plainText(err))
	case errors.Is(err, ErrForbidden):
		rejectAPI(w, http.StatusForbidden, "forbidden", plainText(err))
	case errors.Is(err, errTenant):
		rejectAPI(w, http.StatusBadRequest, "bad_data", plainText(err))
	default: // The request's context has ended.
		rejectAPI(w, http.StatusServiceUnavailable, "canceled", err.Error())
	}
}

// plainText removes the name of the package from an error, because it is meaningless to clients.
func plainText(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "server: "), "auth: ")
}

// tenantOf returns the tenant of a request, and whether the request names it. A request can name its tenant in the
// path, in the header, or in both, which must then agree. The user must be allowed to use the tenant. user is nil if
// there is no authentication.
func (a *authorizer) tenantOf(role Role, user *auth.User, r *http.Request) (name string, named bool, err error) {
	names := r.Header.Values(tenant.Header)
	prefix, prefixed := prefixOf(r.Context())
	switch {
	case len(names) > 1:
		return "", false, fmt.Errorf("%w: header %s is set %d times", errTenant, tenant.Header, len(names))
	case len(names) == 1:
		if name, err = a.checkTenant(role, names[0]); err != nil {
			return "", false, fmt.Errorf("%w: header %s: %w", errTenant, tenant.Header, err)
		}
	case !prefixed:
		name, err = usualTenant(user)
		return name, false, err
	}
	if prefixed {
		fromPath, err := a.checkTenant(role, prefix)
		if err != nil {
			return "", false, fmt.Errorf("%w: path /t/%s/: %w", errTenant, url.PathEscape(prefix), err)
		}
		if len(names) == 1 && fromPath != name {
			return "", false, fmt.Errorf("%w: the path names %s, but the header %s names %s", errTenant,
				fromPath, tenant.Header, name)
		}
		name = fromPath
	}
	return name, true, checkTenants(user, name)
}

// usualTenant returns the default tenant of a user, for requests that don't name a tenant.
func usualTenant(user *auth.User) (string, error) {
	if user == nil {
		return tenant.Default, nil
	}
	if user.Tenant() == "" {
		return "", fmt.Errorf("%w: user %q has no default tenant; name the tenant in the header %s", errTenant,
			user.Name(), tenant.Header)
	}
	return user.Tenant(), nil
}

// checkTenants returns an error if the user may not use all tenants in a list such as a|b.
func checkTenants(user *auth.User, list string) error {
	if user == nil {
		return nil
	}
	for name := range strings.SplitSeq(list, "|") {
		if !user.CanUse(name) {
			return fmt.Errorf("%w: user %q may not use tenant %q", ErrForbidden, user.Name(), name)
		}
	}
	return nil
}

// maxTenants is the max number of tenants in one query.
const maxTenants = 64

// checkTenant validates the tenant that a request names and returns it. In a list such as a|b, it sorts the tenants and
// removes duplicates.
func (a *authorizer) checkTenant(role Role, name string) (string, error) {
	if !a.allowsFederation || role != Read && role != Open || !strings.Contains(name, "|") {
		return name, tenant.CheckName(name)
	}
	list := strings.Split(name, "|")
	if len(list) > maxTenants {
		return "", fmt.Errorf("%w: the request names %d tenants; the maximum is %d",
			tenant.ErrInvalid, len(list), maxTenants)
	}
	for _, one := range list {
		if err := tenant.CheckName(one); err != nil {
			return "", err
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), "|"), nil
}

type (
	userKey     struct{}
	prefixKey   struct{}
	admittedKey struct{}
)

// authorization is the result of authorizing a request.
type authorization struct {
	tenant string
	// namesTenant is set if the path or the header of the request names the tenant.
	namesTenant bool
	// user is nil if there is no authentication.
	user *auth.User
}

// TenantFor returns the tenant of a request whose body or parameters may also name a tenant. asked is that tenant, or
// "". If the path or the header names a tenant, asked must be empty or equal to it. ctx must be the context of an
// authorized request. The errors wrap errTenant or ErrForbidden.
func TenantFor(ctx context.Context, asked string) (string, error) {
	a, _ := ctx.Value(admittedKey{}).(authorization)
	if asked == "" || asked == a.tenant {
		return tenant.FromContext(ctx), nil
	}
	if err := tenant.CheckName(asked); err != nil {
		return "", fmt.Errorf("%w: %w", errTenant, err)
	}
	if a.namesTenant {
		return "", fmt.Errorf("%w: the path or the header %s names %s, but the request itself names %s", errTenant,
			tenant.Header, a.tenant, asked)
	}
	if err := checkTenants(a.user, asked); err != nil {
		return "", err
	}
	return asked, nil
}

// UserOf returns the user of an authorized request. It returns nil if authentication is disabled and every client has
// all roles.
func UserOf(ctx context.Context) *auth.User {
	user, _ := ctx.Value(userKey{}).(*auth.User)
	return user
}

// PathTenant returns the tenant in a path that starts with /t/{tenant}/, or "".
func PathTenant(ctx context.Context) string {
	name, _ := prefixOf(ctx)
	return name
}

// prefixOf returns the tenant at the start of a request's path, without validating it.
func prefixOf(ctx context.Context) (string, bool) {
	name, ok := ctx.Value(prefixKey{}).(string)
	return name, ok
}

// stripTenant removes /t/{tenant} from the path and adds the tenant to the context.
func stripTenant(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, twice := prefixOf(r.Context()); twice {
			http.NotFound(w, r)
			return
		}
		_, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/t/"), "/")
		inner := r.Clone(context.WithValue(r.Context(), prefixKey{}, r.PathValue("tenant")))
		inner.URL.Path = "/" + rest
		next.ServeHTTP(&redirectWriter{w, inner.URL.Path}, inner)
	})
}

// decodePath makes the mux match the decoded path, which the handlers use. Otherwise the authorizer and a handler could
// interpret a path such as status%2Fflags differently.
func decodePath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawPath != "" {
			r = r.Clone(r.Context())
			r.URL.RawPath = ""
		}
		next.ServeHTTP(w, r)
	})
}
