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

// origins prevents pages of other origins in a user's browser from using what the browser can reach. adapter/design.md
// lists the affected requests.
type origins struct {
	// foreign detects writes that a page of another origin makes the browser send.
	foreign *http.CrossOriginProtection
	// hosts are the names of this server in addition to addresses, localhost and names without a dot.
	hosts map[string]bool
	// domains are the domains whose names all belong to this server, as .example.org.
	domains []string
	// authRequired reports whether every request must be authenticated.
	authRequired func() bool
}

func newOrigins(external *url.URL, hosts []string, authRequired func() bool) origins {
	o := origins{foreign: http.NewCrossOriginProtection(), hosts: map[string]bool{}, authRequired: authRequired}
	if external != nil {
		// Proxies may change the Host header. This is the name that browsers use.
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

// check returns an error that wraps ErrForbidden for a request that a page of another origin may have caused.
func (o *origins) check(route Route, r *http.Request) error {
	if isHealth(route) {
		return nil
	}
	changes := route.changes(r.Method)
	if changes {
		if err := o.foreign.Check(r); err != nil {
			return fmt.Errorf(
				"%w: pages of another origin (%q) can't make changes; if this is Cassia's own page behind a proxy, "+
					"set --web.external-url",
				ErrForbidden, shortened(r.Header.Get("Origin")),
			)
		}
	}
	// An attacker can let a name of their own resolve to this address (DNS rebinding). The browser then treats their
	// page as having the same origin, but it sends no passwords and accepts no certificate. Browsers send the Origin of
	// every request that may change something, so such a request without an Origin is from another program, possibly
	// through a proxy. Read requests have no Origin.
	if o.authRequired() || r.TLS != nil || o.isUnforgeable(r.Host) {
		return nil
	}
	if changes && r.Header.Get("Origin") != "" || !changes && throughLoopback(r) {
		return fmt.Errorf(
			"%w: %q is not a name of this server; use its address, or add the name with --web.allowed-host",
			ErrForbidden, shortened(r.Host),
		)
	}
	return nil
}

// isHealth reports whether a route serves health checks, which may use any host name.
func isHealth(route Route) bool {
	path := strings.TrimPrefix(route.Path, "GET ")
	return path == healthyPath || path == readyPath
}

// changes reports whether a request with this method may change something, so that browsers send its Origin. Requests
// with other methods only read, also on routes for admins.
func (r *Route) changes(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return r.Role == Write || r.Role == Admin || r.Changes
}

// isUnforgeable reports whether an attacker can't let this host name resolve to this server.
func (o *origins) isUnforgeable(host string) bool {
	name := hostName(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost") || o.hosts[name] ||
		slices.ContainsFunc(o.domains, func(domain string) bool { return strings.HasSuffix(name, domain) })
}

// hostName returns the name of host or host:port in the form in which names are compared.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// throughLoopback reports whether a request arrived on a loopback connection, which only programs on this machine can
// open, such as its browsers.
func throughLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	address, err := netip.ParseAddrPort(local.String())
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// shortened returns the part of a request header that a response may repeat.
func shortened(s string) string { return s[:min(len(s), 200)] }
