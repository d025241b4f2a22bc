package metadata

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/cassia-db/cassia/storage/tenant"
)

// Source is a server whose metadata is polled.
type Source struct {
	// Tenant is the tenant whose metrics the server scrapes.
	Tenant string
	// URL is the server's base URL. Its user info, if any, is sent as basic authentication.
	URL *url.URL
	// Client sends the requests.
	Client *http.Client
}

// errSource doesn't contain the input, which may hold a password.
var errSource = errors.New("must be a URL such as http://prometheus:9090, or tenant=URL")

// ParseSource parses "tenant=URL", or "URL" for the default tenant. Its errors don't contain the URL.
func ParseSource(text string) (Source, error) {
	s := Source{Tenant: tenant.Default}
	if name, rest, found := strings.Cut(text, "="); found && !strings.Contains(name, "://") {
		if err := tenant.CheckName(name); err != nil {
			return Source{}, err
		}
		s.Tenant, text = name, rest
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return Source{}, errSource
	}
	s.URL = u
	return s, nil
}

// String returns the source as given on the command line, without the password.
func (s Source) String() string {
	if s.Tenant == tenant.Default {
		return s.URL.Redacted()
	}
	return s.Tenant + "=" + s.URL.Redacted()
}

// name returns the URL without user info, for logs and metrics.
func (s Source) name() string {
	u := *s.URL
	u.User = nil
	return u.String()
}
