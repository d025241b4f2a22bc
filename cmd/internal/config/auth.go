package config

import (
	"errors"
	"strings"

	"github.com/cassia-db/cassia/cmd/internal/auth"
	"github.com/cassia-db/cassia/cmd/internal/webconfig"
)

// checkAuth reads the files for users and TLS. It returns an error if a file is invalid or if the files contradict each
// other.
func (c *Config) checkAuth() (err error) {
	if c.WebConfigFile != "" {
		if c.Web, err = webconfig.Open(c.WebConfigFile, c.AuthFile != ""); err != nil {
			return err
		}
	}
	if c.AuthFile == "" {
		return nil
	}
	if c.Auth, err = auth.Open(c.AuthFile); err != nil {
		return errors.New(oneLine(err))
	}
	return nil
}

// AuthRequired reports whether every request needs a password, a token or a certificate.
func (c *Config) AuthRequired() bool { return c.hasPasswords() || c.Web.IsMutual() }

func (c *Config) hasPasswords() bool { return c.Auth != nil || c.Web.HasUsers() }

// Warnings returns a line per questionable setting, for operators.
func (c *Config) Warnings() []string { return append(c.authWarnings(), c.memoryWarnings()...) }

// authWarnings returns a line per missing protection of a server that is reachable from other machines.
func (c *Config) authWarnings() (out []string) {
	public := c.PublicAddresses()
	if len(public) == 0 {
		return nil
	}
	at := strings.Join(public, " ")
	if !c.AuthRequired() {
		out = append(out, "this server is reachable from other machines at "+at+
			" without authentication; set --auth.file, or listen on 127.0.0.1")
	}
	if c.hasPasswords() && !c.Web.UsesTLS() {
		out = append(out, "passwords and tokens are sent unencrypted at "+at+
			"; enable TLS with --web.config.file, or allow connections only from an encrypting proxy")
	}
	if c.Auth == nil && c.AdminAPI && len(out) == 0 {
		out = append(out, "every client authenticated at "+at+
			" may change and delete samples of all tenants (--web.enable-admin-api); set --auth.file to give "+
			"users roles")
	}
	return out
}
