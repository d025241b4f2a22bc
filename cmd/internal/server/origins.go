package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// origins keep pages of others, which a user's browser shows, from using what that browser can reach. adapter/design.md
// lists the requests that this concerns.
type origins struct {
	// foreign finds writes that a page of another origin has the browser send.
	foreign *http.CrossOriginProtection
	// hosts are the names of this server, beside addresses, localhost and names without a dot.
	hosts map[string]bool
	// domains are those whose names are all this server's, as .example.org.
	domains []string
	// authRequired returns true if every request must be authenticated.
	authRequired func() bool
}

func newOrigins(external *url.URL, hosts []string, authRequired func() bool) origins {
	o := origins{foreign: http.NewCrossOriginProtection(), hosts: map[string]bool{}, authRequired: authRequired}
	if external != nil {
		// Proxies may change Host; this is what browsers call the server then.
		if err := o.foreign.AddTrustedOrigin(external.Scheme + "://" + external.Host); err == nil {
			o.hosts[hostName(external.Host)] = true
		}
	}
	for _, host := range hosts {
		if domain, ok := strings.CutPrefix(host, "*"); ok {
			o.domains = append(o.domains, hostName(domain))
		} else {
			o.hosts[hostName(host)] = true
		}
	}
	return o
}

// check returns an error that wraps ErrForbidden, for a request that a page of another origin may have had sent.
func (o *origins) check(route Route, r *http.Request) error {
	if isHealth(route) {
		return nil
	}
	changes := route.changes(r.Method)
	if changes {
		if err := o.foreign.Check(r); err != nil {
			return fmt.Errorf("%w: pages of another origin (%q) can't make changes; if this is Cassia's own page behind a proxy, set --web.external-url",
				ErrForbidden, shortened(r.Header.Get("Origin")))
		}
	}
	// A name of an attacker's that leads to this address makes their page one of the same origin. It doesn't make the
	// browser send passwords, nor accept a certificate. Browsers name the origin of whatever may change something, so what
	// names none is a program's, which a proxy may have passed on; of what reads they name none.
	if o.authRequired() || r.TLS != nil || o.isUnforgeable(r.Host) {
		return nil
	}
	if changes && r.Header.Get("Origin") != "" || !changes && throughLoopback(r) {
		return fmt.Errorf("%w: %q is not a name of this server; use its address, or add the name with --web.allowed-host", ErrForbidden, shortened(r.Host))
	}
	return nil
}

// isHealth reports whether a route serves probes, which may use any name.
func isHealth(route Route) bool {
	path := strings.TrimPrefix(route.Path, "GET ")
	return path == healthyPath || path == readyPath
}

// changes reports whether a request of this method may change something, so that browsers name its origin. Requests of other methods read,
// also those of routes for administrators.
func (r *Route) changes(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return r.Role == Write || r.Role == Admin || r.Changes
}

// isUnforgeable reports whether a host is none that an attacker can have lead here.
func (o *origins) isUnforgeable(host string) bool {
	name := hostName(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost") || o.hosts[name] ||
		slices.ContainsFunc(o.domains, func(domain string) bool { return strings.HasSuffix(name, domain) })
}

// hostName is the name of host or host:port, as it is compared.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// throughLoopback reports whether a request came over a connection that only programs of this machine can make, such as its
// browsers.
func throughLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	address, err := netip.ParseAddrPort(local.String())
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// shortened is the part of a request's header that an answer repeats.
func shortened(s string) string { return s[:min(len(s), 200)] }
