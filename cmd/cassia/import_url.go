package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/adapter/importer/overhttp"
	"github.com/cassia-db/cassia/cmd/internal/server"
)

// importPatience is how long an import retries while a server is unreachable or busy.
const importPatience = 5 * time.Minute

// urlFlags holds the flags that select a server as the destination of an import. If url is empty, the import opens a
// store itself.
type urlFlags struct {
	url   string
	login *httpConfig
	// given contains, by name, the flags that can't be combined with --url because only the server's own setting
	// applies. The value is true if the user set the flag.
	given map[string]*bool
}

func newURLFlags(cmd *kingpin.CmdClause) *urlFlags {
	f := &urlFlags{given: map[string]*bool{}}
	cmd.Flag(
		"url",
		"URL of a running server to import into, such as http://localhost:9201. Default: none; the import opens the store itself.",
	).StringVar(&f.url)
	// The login to the destination is configured separately from a login to the source.
	f.login = newHTTPConfig(cmd, "url.http.config.file",
		"Prometheus HTTP client configuration file (as for promtool): how to log in to the server of --url as an admin.")
	for _, name := range []string{"storage.engine", "storage.path", "cassandra.hosts", "cassandra.keyspace",
		"retention.5m", "retention.1h", "retention.file"} {
		f.given[name] = new(bool)
		cmd.GetFlag(name).IsSetByUser(f.given[name])
	}
	return f
}

// newClient returns a client that sends samples to the server.
func (f *urlFlags) newClient(waiting func(error)) (*overhttp.Client, error) {
	for name, said := range f.given {
		if *said {
			return nil, fmt.Errorf("--%s configures a store that this command opens; omit it with --url", name)
		}
	}
	header := http.Header{}
	u, err := fetch.ParseURL(f.url, header)
	if err != nil {
		return nil, fmt.Errorf("--url=%s: must be a URL such as http://localhost:9201", importer.Shorten(f.url))
	}
	c := &overhttp.Client{
		To: fetch.Client{URL: u, Header: header}, Patience: importPatience, Wait: fetch.Sleep,
		Now: time.Now, Waiting: waiting,
	}
	c.To.HTTP, err = f.login.newClient(f.url)
	return c, err
}

// importOverHTTP imports samples into the store of a running server.
func (c *importCommand) importOverHTTP(ctx context.Context, plan importer.Plan, source importer.Source) error {
	waiting := &waitPrinter{now: time.Now}
	client, err := c.to.newClient(waiting.print)
	if err != nil {
		return err
	}
	where := client.Location()
	terms, err := client.Terms(ctx, c.tenant)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w before any work was done; run it again", errInterrupted)
	}
	if err != nil {
		return fmt.Errorf("--url=%s: %s", where, oneLine(err))
	}
	if err := c.applyServerRetention(terms); err != nil {
		return err
	}
	if c.dryRun {
		return c.runDry(ctx, source)
	}
	if err := c.old.admitPlan(plan); err != nil {
		return err
	}
	return c.run(ctx, client, where, source)
}

// applyServerRetention applies the server's retention. If the flags also set a retention, it must be equal to the
// server's.
func (c *importCommand) applyServerRetention(terms overhttp.Terms) (err error) {
	raw := time.Duration(terms.RetentionMS) * time.Millisecond
	if c.old.isAccepted {
		said, err := c.kept()
		if err != nil {
			return err
		}
		if said.Raw != raw {
			return fmt.Errorf(
				"--retention.raw=%s doesn't match the server, which keeps raw samples of this tenant %s; set --retention.raw=%s, or omit it",
				model.Duration(said.Raw), keptFor(raw), model.Duration(raw),
			)
		}
	}
	c.old.remedy = "or set a longer retention on the server first"
	c.old.kept, err = terms.RetentionPolicy()
	return err
}

func keptFor(d time.Duration) string {
	if d == 0 {
		return "forever"
	}
	return "for " + model.Duration(d).String()
}

// waitPrinter prints the reason why an import waits. The same reason is printed at most once per printAgain.
type waitPrinter struct {
	now  func() time.Time
	last string
	at   time.Time
}

// printAgain is the interval after which the same reason is printed again.
const printAgain = 30 * time.Second

func (w *waitPrinter) print(err error) {
	text, now := oneLine(err), w.now()
	if text == w.last && now.Sub(w.at) < printAgain {
		return
	}
	w.last = text
	w.at = now
	fmt.Fprintf(os.Stderr, "\nwaiting for the server: %s\n", strings.TrimPrefix(text, "overhttp: "))
}

// importRoutes returns the routes for importing samples into the store. Imports are exempt from the limits on writes.
// If authentication is enabled, the routes therefore require an admin.
func (p *process) importRoutes() []server.Route {
	o := overhttp.DefaultOptions()
	o.MaxWeight = min(o.MaxWeight, max(leastImportWeight, p.c.HeadBytes/8), p.c.BodyBytes()/2)
	o.Bodies = p.bodies
	o.Ready = p.store.Ready
	o.Retention = p.c.Retention.KeptOf
	o.Logger = p.log.With("component", "import")
	s := overhttp.NewServer(importer.NewLocal(p.store, time.Now), o)
	routes := []server.Route{
		{Path: overhttp.Path, Handler: http.HandlerFunc(s.Import)},
		{Path: overhttp.Path + "/compare", Handler: http.HandlerFunc(s.Compare)},
	}
	for i := range routes {
		r := &routes[i]
		r.Name = r.Path
		r.Role = server.Admin
		r.Tenant = true
		r.OwnBounds = true
		r.Handler = p.requireRole("write", "history", r.Handler)
	}
	return routes
}

// leastImportWeight is the min limit on the memory that the series in one request of an import may use, in bytes. It
// applies if the limit computed from the memory limit is smaller.
const leastImportWeight = 8 << 20
