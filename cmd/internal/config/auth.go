package config

import (
	"errors"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cassia-db/cassia/cmd/internal/auth"
)

// webAuth are the locks in exporter-toolkit's file.
type webAuth struct {
	TLS struct {
		Cert       string `yaml:"cert"`
		CertFile   string `yaml:"cert_file"`
		ClientAuth string `yaml:"client_auth_type"`
	} `yaml:"tls_server_config"`
	Users map[string]yaml.Node `yaml:"basic_auth_users"`
}

func (l *webAuth) encrypts() bool { return l.TLS.Cert != "" || l.TLS.CertFile != "" }

// mutual reports whether only clients with a certificate are let in.
func (l *webAuth) mutual() bool {
	return l.encrypts() && l.TLS.ClientAuth == "RequireAndVerifyClientCert"
}

// checkAuth reads the locks, and returns an error if they don't fit together.
func (c *Config) checkAuth() error {
	if c.WebConfigFile != "" {
		text, err := os.ReadFile(c.WebConfigFile)
		if err != nil {
			return flagError("web.config.file", c.WebConfigFile, oneLine(err))
		}
		if yaml.Unmarshal(text, &c.locks) != nil { // exporter-toolkit has found nothing wrong with it.
			return flagError("web.config.file", c.WebConfigFile, "isn't valid YAML")
		}
	}
	if c.AuthFile == "" {
		return nil
	}
	if len(c.locks.Users) > 0 {
		return flagError("auth.file", c.AuthFile, "--web.config.file also has basic_auth_users; move them to this file")
	}
	var err error
	if c.Auth, err = auth.Open(c.AuthFile); err != nil {
		return errors.New(oneLine(err))
	}
	return nil
}

// AuthRequired returns true if every request needs a password, a token or a certificate.
func (c *Config) AuthRequired() bool { return c.passwords() || c.locks.mutual() }

func (c *Config) passwords() bool { return c.Auth != nil || len(c.locks.Users) > 0 }

// Warnings lists questionable settings for operators, one line each.
func (c *Config) Warnings() []string { return append(c.authWarnings(), c.memoryWarnings()...) }

// authWarnings lists locks that are missing, where other machines reach the server.
func (c *Config) authWarnings() (out []string) {
	public := c.Public()
	if len(public) == 0 {
		return nil
	}
	at := strings.Join(public, " ")
	if !c.AuthRequired() {
		out = append(out, "this server is reachable from other machines at "+at+" without authentication; set --auth.file, or listen on 127.0.0.1")
	}
	if c.passwords() && !c.locks.encrypts() {
		out = append(out, "passwords and tokens are sent unencrypted at "+at+
			"; enable TLS with --web.config.file, or allow connections only from an encrypting proxy")
	}
	if c.Auth == nil && c.AdminAPI && len(out) == 0 {
		out = append(out, "every client authenticated at "+at+
			" may change and delete samples of all tenants (--web.enable-admin-api); set --auth.file to give users roles")
	}
	return out
}
