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

// originChecker rejects requests with which a web page of another origin could use a user's browser to access this
// server. adapter/design.md lists the affected requests.
type originChecker struct {
	// foreign detects writes that a page of another origin caused the browser to send.
	foreign *http.CrossOriginProtection
	// hosts contains the host names of this server. IP addresses, localhost and names without a dot are always
	// accepted.
	hosts map[string]bool
	// domains contains suffixes of host names, such as .example.org. All names with such a suffix belong to this
	// server.
	domains []string
	// authRequired reports whether every request must be authenticated.
	authRequired func() bool
}

func newOrigins(external *url.URL, hosts []string, authRequired func() bool) originChecker {
	o := originChecker{foreign: http.NewCrossOriginProtection(), hosts: map[string]bool{}, authRequired: authRequired}
	if external != nil {
		// Proxies may change the Host header, so the host of the external URL, which browsers use, is trusted as an
		// origin.
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

// checkOrigin returns an error that wraps ErrForbidden if a page of another origin may have caused the request.
func (o *originChecker) checkOrigin(route Route, r *http.Request) error {
	if isHealth(route) {
		return nil
	}
	changes := route.mayChange(r.Method)
	if changes {
		if err := o.foreign.Check(r); err != nil {
			return fmt.Errorf(
				"%w: pages of another origin (%q) can't make changes; if this is Cassia's own page behind a proxy, "+
					"set --web.external-url",
				ErrForbidden, shortenValue(r.Header.Get("Origin")),
			)
		}
	}
	// An attacker can make a host name of their own resolve to this server's address (DNS rebinding). The browser then
	// treats the attacker's page as same-origin. However, the browser doesn't send this server's passwords to that host
	// name, and doesn't accept this server's certificate for it. Browsers send the Origin header with every request
	// that may change something, so such a request without the header is from another program, possibly through a
	// proxy. Read requests have no Origin header.
	if o.authRequired() || r.TLS != nil || o.isUnforgeable(r.Host) {
		return nil
	}
	if changes && r.Header.Get("Origin") != "" || !changes && isLoopback(r) {
		return fmt.Errorf(
			"%w: %q is not a name of this server; use its address, or add the name with --web.allowed-host",
			ErrForbidden, shortenValue(r.Host),
		)
	}
	return nil
}

// isHealth reports whether a route serves health checks, which may use any host name.
func isHealth(route Route) bool {
	path := strings.TrimPrefix(route.Path, "GET ")
	return path == healthyPath || path == readyPath
}

// mayChange reports whether requests with this method may change something. Browsers send their Origin. Requests with
// other methods only read, even on routes for admins.
func (r *Route) mayChange(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return r.Role == Write || r.Role == Admin || r.Changes
}

// isUnforgeable reports whether an attacker can't make this host name resolve to this server's address.
func (o *originChecker) isUnforgeable(host string) bool {
	name := hostName(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost") || o.hosts[name] ||
		slices.ContainsFunc(o.domains, func(domain string) bool { return strings.HasSuffix(name, domain) })
}

// hostName returns the normalized host name of host or host:port, for comparisons.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isLoopback reports whether a request arrived on a loopback connection. Only programs on this machine, such as
// browsers, can open one.
func isLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	address, err := netip.ParseAddrPort(local.String())
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// shortenValue truncates the value of a request header, so that it can be quoted in a response.
func shortenValue(s string) string { return s[:min(len(s), 200)] }
