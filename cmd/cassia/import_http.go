package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/adapter/importer/remoteread"
	"github.com/cassia-db/cassia/adapter/importer/victoria"
)

// serverFlags configures the requests to a server from which samples are imported.
type serverFlags struct {
	headers []string
	login   *httpConfig
	piece   string
}

func newServerFlags(cmd *kingpin.CmdClause) *serverFlags {
	f := &serverFlags{login: httpConfigFlag(cmd)}
	cmd.Flag(
		"header",
		"HTTP header to send with each request, as 'Name: value', such as 'X-Scope-OrgID: team-a'. Repeatable.",
	).StringsVar(&f.headers)
	cmd.Flag(
		"piece", "Time range of one request, at most 1d. It is reduced automatically if the server rejects a request.",
	).Default("1d").StringVar(&f.piece)
	return f
}

// newClient returns a client for requests to a URL.
func (f *serverFlags) newClient(url string) (c fetch.Client, err error) {
	c.Header = http.Header{}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); !ok || name == "" {
			return c, fmt.Errorf("--header=%s: must be 'Name: value'", importer.Shorten(h))
		}
		if name == "Authorization" {
			return c, errors.New(
				"--header=Authorization: other users of this machine could see it in the process list; use --http.config.file instead",
			)
		}
		c.Header.Add(name, strings.TrimSpace(value))
	}
	if c.URL, err = fetch.ParseURL(url, c.Header); err != nil {
		return c, err
	}
	c.HTTP, err = f.login.newClient(url)
	return c, err
}

// parseWidth parses the flag for the time range of one request.
func (f *serverFlags) parseWidth() (time.Duration, error) {
	d, err := model.ParseDuration(f.piece)
	if w := time.Duration(d); err != nil || w < time.Minute || w > 24*time.Hour || 24*time.Hour%w != 0 {
		return 0, fmt.Errorf("--piece=%s: must be a duration of at most 1d that divides it, such as 2h", f.piece)
	}
	return time.Duration(d), nil
}

// addImportRemoteRead declares the import by remote read.
func addImportRemoteRead(imports *kingpin.CmdClause) subcommand {
	cmd := imports.Command("remote-read",
		"Import from a server that supports Prometheus remote read: Prometheus, Thanos, Mimir and others. Requires --start.")
	c, f := newImportCommand(cmd), newServerFlags(cmd)
	url := cmd.Arg("url", "Remote read URL, such as http://localhost:9090/api/v1/read.").Required().String()
	return c.fromSource(func() string { return "remote-read " + withoutUser(*url) },
		func(_ context.Context, sel importer.Selection) (importer.Source, error) {
			client, width, err := f.parse(*url)
			if err != nil {
				return nil, err
			}
			return remoteread.New(remoteread.Options{Client: client, Selection: sel, Width: width, Now: time.Now}), nil
		})
}

func (f *serverFlags) parse(url string) (c fetch.Client, width time.Duration, err error) {
	if width, err = f.parseWidth(); err == nil {
		c, err = f.newClient(url)
	}
	return c, width, err
}

// addImportVictoriaMetrics declares the import from VictoriaMetrics: from exported files or from a server.
func addImportVictoriaMetrics(imports *kingpin.CmdClause) subcommand {
	cmd := imports.Command("victoriametrics",
		"Import from VictoriaMetrics: an exported file of JSON lines or in the native format, or the server itself, which requires --start.")
	c, f := newImportCommand(cmd), newServerFlags(cmd)
	format := cmd.Flag(
		"format", "Export format: jsonl, as written by /api/v1/export, or native, as written by /api/v1/export/native.",
	).Default("jsonl").Enum("jsonl", "native")
	where := cmd.Arg(
		"from", "File, - for standard input, or a server URL such as http://localhost:8428.",
	).Required().String()
	return c.fromSource(func() string { return "victoriametrics " + *format + " " + withoutUser(dashIfEmpty(*where)) },
		func(_ context.Context, sel importer.Selection) (importer.Source, error) {
			if strings.HasPrefix(*where, "http://") || strings.HasPrefix(*where, "https://") {
				client, width, err := f.parse(*where)
				if err != nil {
					return nil, err
				}
				return victoria.New(victoria.Options{Client: client, Native: *format == "native", Selection: sel,
					Width: width, Now: time.Now}), nil
			}
			return fileOfVictoria(*where, *format, sel), c.checkFile(*where)
		})
}
