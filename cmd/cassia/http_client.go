package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/alecthomas/kingpin/v2"
	promconfig "github.com/prometheus/common/config"

	"github.com/cassia-db/cassia/cmd/internal/lasting"
)

// httpConfig is the client configuration file that contains a command's login to a server. All commands and promtool
// use the same format. flag is the name of the flag that sets the file.
type httpConfig struct{ flag, file string }

func httpConfigFlag(cmd *kingpin.CmdClause) *httpConfig {
	return newHTTPConfig(cmd, "http.config.file",
		"Prometheus HTTP client configuration file (as for promtool): how to log in to the server, and which "+
			"certificates to trust.")
}

func newHTTPConfig(cmd *kingpin.CmdClause, flag, help string) *httpConfig {
	c := &httpConfig{flag: flag}
	cmd.Flag(flag, help).PlaceHolder("FILE").StringVar(&c.file)
	return c
}

// newClient returns a client for requests to a URL, configured by the file. Without a file, it uses the default
// configuration and the proxy from the environment. A login in the URL is used only if the file contains none.
func (c *httpConfig) newClient(to string) (*http.Client, error) {
	conf := promconfig.DefaultHTTPClientConfig
	conf.ProxyFromEnvironment = true
	wrong := func(err error) (*http.Client, error) {
		return nil, fmt.Errorf("--%s=%s: %s", c.flag, c.file,
			unknownKey.ReplaceAllString(oneLine(err), "unknown key $1"))
	}
	if c.file != "" {
		read, _, err := promconfig.LoadHTTPConfigFile(c.file)
		if err != nil {
			return wrong(err)
		}
		if err := checkSecrets(read); err != nil {
			return wrong(err)
		}
		if to != withoutUser(to) && (read.BasicAuth != nil || read.Authorization != nil || read.OAuth2 != nil) {
			return wrong(errors.New("the URL also has a user; use only one way to log in"))
		}
		conf = *read
	}
	client, err := promconfig.NewClientFromConfig(conf, "cassia", promconfig.WithUserAgent("cassia"))
	if err != nil {
		return wrong(err)
	}
	authority := "ca_file in the tls_config of --" + c.flag
	client.Transport = timeoutTransport{lasting.NewTransport(client.Transport, authority)}
	return client, nil
}

// unknownKey matches the parser's error for an unknown key. The Go type in it means nothing to users.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// checkSecrets returns an error if a file with a secret can't be read, so that the error is reported before the first
// request.
func checkSecrets(c *promconfig.HTTPClientConfig) error {
	files := map[string]string{}
	if a := c.BasicAuth; a != nil {
		files["basic_auth: username_file"], files["basic_auth: password_file"] = a.UsernameFile, a.PasswordFile
	}
	if a := c.Authorization; a != nil {
		files["authorization: credentials_file"] = a.CredentialsFile
	}
	if o := c.OAuth2; o != nil {
		files["oauth2: client_secret_file"] = o.ClientSecretFile
	}
	for key, file := range files {
		if file == "" {
			continue
		}
		if _, err := os.ReadFile(file); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// answerTimeout is the max time until the first byte of a response.
const answerTimeout = 10 * time.Minute

// errNoAnswer means that no response arrived within answerTimeout.
var errNoAnswer = fmt.Errorf("no response for %s", answerTimeout)

// timeoutTransport is a round tripper that waits at most answerTimeout for a response. Prometheus' client configuration
// has no setting for this.
type timeoutTransport struct{ next http.RoundTripper }

func (t timeoutTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(answerTimeout, func() { cancel(errNoAnswer) })
	answer, err := t.next.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answer.Body = endingBody{answer.Body, cancel}
	return answer, nil
}

// endingBody cancels the context of its request when the body is closed.
type endingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b endingBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// withoutUser removes the login from a URL.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil { // An invalid URL is rejected where it is used.
		return text
	}
	u.User = nil
	return u.String()
}
