package config

import (
	"net"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/grafana/regexp"
	"github.com/prometheus/common/model"
)

// Validate parses and checks the values of the flags and completes c. Its error names the first invalid flag.
func (c *Config) Validate() error {
	c.setParts()
	if err := CheckRanges(c.cmd.Model().Flags); err != nil {
		return err
	}
	for _, check := range []func() error{c.checkWeb, c.checkStorage, c.checkQuery, c.checkOTLP, c.checkHA, c.checkRules,
		c.checkMetadata, c.checkBackup} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkWeb() error {
	for _, address := range c.ListenAddresses {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return flagError("web.listen-address", address, "must be host:port, such as :9201 or 127.0.0.1:9201")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return flagError("web.listen-address", address, "the port must be a number from 0 to 65535")
		}
	}
	if err := c.checkAuth(); err != nil {
		return err
	}
	var err error
	if c.CORSOrigin, err = regexp.Compile("^(?s:" + c.corsOrigin + ")$"); err != nil {
		return flagError("web.cors.origin", c.corsOrigin,
			"must be a regular expression such as https?://grafana\\.example\\.org")
	}
	if err := c.checkAllowedHosts(); err != nil {
		return err
	}
	return c.checkExternalURL()
}

// HostNames returns the host names of this process in addition to the one in ExternalURL: the machine's name, the names
// on which it listens, and AllowedHosts.
func (c *Config) HostNames() (out []string) {
	if name, err := os.Hostname(); err == nil {
		out = append(out, name)
	}
	for _, address := range c.ListenAddresses {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			out = append(out, host)
		}
	}
	return append(out, c.AllowedHosts...)
}

// hostPattern matches a host name, or *. followed by a host name.
var hostPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?$`)

func (c *Config) checkAllowedHosts() error {
	for _, host := range c.AllowedHosts {
		if !hostPattern.MatchString(host) {
			return flagError("web.allowed-host", host,
				"must be a host name such as cassia.example.org, or *.example.org, without a scheme and a port")
		}
	}
	return nil
}

// checkExternalURL sets ExternalURL and RoutePrefix as Prometheus does: the prefix is the path of the URL unless a flag
// sets the prefix.
func (c *Config) checkExternalURL() error {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	_, port, err := net.SplitHostPort(c.ListenAddresses[0])
	if err != nil {
		return err
	}
	u := &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}
	if strings.HasPrefix(c.externalURL, "/") {
		u.Path = c.externalURL
	} else if c.externalURL != "" {
		u, err = url.Parse(c.externalURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
			u.RawQuery != "" || u.Fragment != "" {
			return flagError("web.external-url", c.externalURL,
				"must be a URL such as https://cassia.example.org, or a path such as /cassia")
		}
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if !isPrefix(u.Path) {
		return flagError("web.external-url", c.externalURL, "the path must be plain, such as /cassia")
	}
	u.RawPath = ""
	c.ExternalURL, c.RoutePrefix = u, u.Path
	if c.routePrefix == "" {
		return nil
	}
	c.RoutePrefix = strings.TrimRight("/"+strings.Trim(c.routePrefix, "/"), "/")
	if !isPrefix(c.RoutePrefix) {
		return flagError("web.route-prefix", c.routePrefix, "must be a plain path, such as /cassia")
	}
	return nil
}

// isPrefix reports whether a path is a valid prefix: empty, or clean and without characters that clients escape.
func isPrefix(s string) bool {
	return s == "" || path.Clean(s) == s && !strings.ContainsAny(s, "?#%\\\"'") &&
		!strings.ContainsFunc(s, unicode.IsControl)
}

func (c *Config) checkStorage() error {
	if err := c.Engine.Validate(); err != nil {
		return err
	}
	switch c.Target {
	case "all", "write", "read", "downsample":
	default:
		return flagError("target", c.Target, "must be all, write, read or downsample")
	}
	if c.Target != "all" && c.Kind == EnginePebble {
		return flagError("target", c.Target,
			"a data directory allows only one process, which must be all; to share a store, use "+
				"--storage.engine=cassandra")
	}
	c.AnySettings = c.slot == "" && c.Partitions == 0
	if c.slot == "" {
		c.slot = "2h"
	}
	for _, d := range []struct {
		flag, value string
		into        *time.Duration
		zero        bool
	}{
		{"storage.slot", c.slot, &c.Slot, false},
		{"storage.settle", c.settle, &c.Settle, true},
	} {
		if err := parseDuration(d.flag, d.value, d.zero, d.into); err != nil {
			return err
		}
	}
	if c.Slot%time.Hour != 0 || (24*time.Hour)%c.Slot != 0 {
		return flagError("storage.slot", c.slot, "must be one of 1h, 2h, 3h, 4h, 6h, 8h, 12h and 24h")
	}
	var err error
	if c.Retention, err = c.retention.parse(); err != nil {
		return err
	}
	c.SetRetention(c.Retention)
	return nil
}

func (c *Config) checkQuery() error {
	if err := parseDuration("query.timeout", c.timeout, false, &c.QueryTimeout); err != nil {
		return err
	}
	if err := parseDuration("query.lookback-delta", c.lookback, false, &c.LookbackDelta); err != nil {
		return err
	}
	if err := parseDuration("query.log-slower-than", c.slower, true, &c.LogSlowerThan); err != nil {
		return err
	}
	var err error
	c.Features, err = parseFeatures(c.features)
	return err
}

// parseDuration parses a flag's duration in Prometheus' syntax. zero allows 0.
func parseDuration(flag, value string, zero bool, into *time.Duration) error {
	d, err := model.ParseDuration(value)
	if err != nil {
		if r, ok := valueRanges[flag]; ok {
			return flagError(flag, value, r.requirement())
		}
		return flagError(flag, value, "must be a duration such as 90s, 15m, 2h, 30d or 1y")
	}
	if d == 0 && !zero {
		return flagError(flag, value, "must be greater than 0")
	}
	*into = time.Duration(d)
	return nil
}

// PublicAddresses returns the listen addresses that are reachable from other machines.
func (c *Config) PublicAddresses() (out []string) {
	for _, address := range c.ListenAddresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil || host == "localhost" {
			continue
		}
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			out = append(out, address)
		}
	}
	return out
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
