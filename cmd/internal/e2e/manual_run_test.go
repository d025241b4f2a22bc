package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer/kairosdb"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
)

// TestManualRuns runs the commands in the manual and checks its files, as defined by the info strings (see block). Each
// page is run in a separate folder that contains the files used on it: a store, text and blocks to import, rule files,
// and certificates.
func TestManualRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: leave -short out")
	}
	t.Parallel()
	program := builtCassia(t)
	template := t.TempDir()
	prepareFolder(t, program, template)
	ran := 0
	for name, text := range cassiatest.ManualPages(t, toRoot) {
		var blocks []block
		for _, b := range blocksOf(text) {
			if b.is("sh", "run") || b.file() != "" || b.is("json") {
				blocks = append(blocks, b)
			}
		}
		if len(blocks) == 0 {
			continue
		}
		ran += len(blocks)
		t.Run(name, func(t *testing.T) {
			p := newPage(t, program, template)
			if example, ok := strings.CutPrefix(filepath.Dir(name), "examples/"); ok {
				p.copyExample(example)
			}
			for _, b := range blocks { // A command may precede the file that it reads.
				if b.file() != "" {
					p.write(b)
				}
			}
			for _, b := range blocks {
				p.run(b, b.where(name))
			}
			p.stop()
		})
	}
	require.Greater(t, ran, 50)
}

// prepareFolder creates the files that pages refer to.
func prepareFolder(t *testing.T, program, dir string) {
	var om strings.Builder
	metrics := []string{"up", "demo", "http_requests_total"}
	for _, metric := range metrics {
		fmt.Fprintf(&om, "# TYPE %s unknown\n", metric)
	}
	for _, metric := range metrics {
		for ago := 120; ago > 0; ago-- {
			fmt.Fprintf(&om, "%s{job=\"node\"} 1 %d\n", metric, time.Now().Add(-time.Duration(ago)*time.Minute).Unix())
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "metrics.om"), []byte(om.String()+"# EOF\n"), 0o600))
	rules, err := filepath.Abs(toRoot + "examples/rules")
	require.NoError(t, err)
	locks, err := filepath.Abs(toRoot + "examples/locks")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", `
		cassia() { "$PROGRAM" "$@"; }
		gzip -k metrics.om
		cassia import openmetrics --storage.path=data --retention.raw=30d metrics.om
		cassia import openmetrics --storage.path=data --retention.raw=30d --tenant=team-a metrics.om
		mkdir prometheus rules team-a bin
		cassia export --storage.path=data --format=blocks --output=prometheus/data/
		cassia export --storage.path=data --format=jsonl --output=out.jsonl
		cp "$RULES"/*.yml rules/
		cp "$RULES"/alerts.yml team-a/
		cp "$LOCKS"/*.yml .
		openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=cassia -keyout server.key -out server.crt
		cp server.crt clients-ca.crt
		cp server.crt server-ca.crt
		printf secret > token
		echo fail > .curlrc`)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PROGRAM="+program, "RULES="+rules, "LOCKS="+locks)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// page is a page whose blocks are run.
type page struct {
	t                    *testing.T
	ctx                  context.Context
	program, dir         string
	address              string // of Cassia
	server               *promrig.Process
	prometheus, victoria string // addresses, or empty
	bucket               *s3test.Server
}

func newPage(t *testing.T, program, template string) *page {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	p := &page{t: t, ctx: ctx, program: program, dir: t.TempDir()}
	require.NoError(t, os.CopyFS(p.dir, os.DirFS(template)))
	promtool := cassiatest.Binary(t, "CASSIA_TEST_PROMTOOL", "promtool")
	for name, path := range map[string]string{"cassia": program, "bin/cassia": program, "promtool": promtool} {
		require.NoError(t, os.Symlink(path, filepath.Join(p.dir, name)))
	}
	p.address = cassiatest.FreeAddress(t)
	t.Cleanup(func() {
		if p.server != nil {
			p.server.Kill()
		}
	})
	return p
}

func (p *page) copyExample(name string) {
	files, err := filepath.Glob(toRoot + "examples/" + name + "/*.yml")
	require.NoError(p.t, err)
	for _, file := range files {
		require.NoError(
			p.t, os.WriteFile(filepath.Join(p.dir, filepath.Base(file)), []byte(cassiatest.ReadText(p.t, file)), 0o600),
		)
	}
}

// run runs the commands of a block, sends its request, or checks its file.
func (p *page) run(b block, where string) {
	p.t.Log(where)
	switch {
	case b.file() != "":
		p.write(b)
		p.check(b, where)
	case b.is("json"):
		p.serve()
		require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, "body.json"), []byte(b.text), 0o600))
		p.shell("curl -s --fail-with-body -H 'Content-Type: application/json' -d @body.json localhost:9201"+b.info[2],
			where)
	case b.has("serve"):
		for line := range strings.Lines(b.text) {
			p.start(line, where)
		}
	default:
		if b.has("server") {
			p.serve()
		} else {
			p.stop()
		}
		if b.has("s3") && p.bucket == nil {
			p.bucket = s3test.Start(p.t)
		}
		if strings.Contains(b.text, "localhost:9090") {
			p.startPrometheus()
		}
		if strings.Contains(b.text, "localhost:8428") {
			p.startVictoria()
		}
		p.transcript(b, where)
	}
}

// transcript runs the commands of a block in one shell or, if their output is compared, one at a time.
func (p *page) transcript(b block, where string) {
	if !b.has("same") {
		var script strings.Builder
		for _, s := range b.steps() {
			script.WriteString(s.command)
		}
		p.shell(script.String(), where, "CURL_HOME="+p.dir) // Its .curlrc makes curl -s fail on an error status.
		return
	}
	for _, s := range b.steps() {
		got := strings.ReplaceAll(p.shell(s.command, where, "CURL_HOME=/dev/null"), "\r", "")
		require.Equal(p.t, strings.TrimSpace(p.here(s.output)), strings.TrimSpace(got), "%s\n%s", where, s.command)
	}
}

// here replaces names in the manual with those of the test: addresses, folders, times, secrets and amounts.
func (p *page) here(text string) string {
	now := time.Now()
	pairs := []string{
		"localhost:9201", p.address, "127.0.0.1:9201", p.address, "0.0.0.0:9201", p.address, "localhost:9090",
		p.prometheus, "localhost:8428", p.victoria, "/mnt/backups", p.dir + "/backups", "/var/lib/prometheus",
		p.dir + "/prometheus", "/etc/cassia", p.dir,
		"start=…&end=…", fmt.Sprintf("start=%d&end=%d", now.Add(-time.Hour).Unix(), now.Unix()),
		"2026-11-22T07:", now.UTC().Add(-time.Hour).Format("2006-01-02T15:"),
		"--series=20000", "--series=20",
		"AWS_ACCESS_KEY_ID=…", s3test.Environment[0], "AWS_SECRET_ACCESS_KEY=…", s3test.Environment[1],
		"$2y$10$…", "$2y$10$UI7Hu47rDXwmgI5FmEZb6u2W4Ht/9uSH1rXor6AgSUBp0UHKmqP.q",
		"sha256:78402532f9…", "sha256:78402532f9418180afc7d6f22578b95beccb176d527ce952b66a8fe6ba310ce3",
	}
	if p.server != nil {
		pairs = append(pairs, "--pid=1234", fmt.Sprintf("--pid=%d", p.server.PID()))
	}
	if p.bucket != nil {
		pairs = append(pairs, "s3://bucket/prefix?region=eu-central-1", s3test.At(p.bucket.Address, "prefix"))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (p *page) environment() []string {
	return append([]string{"PATH=" + p.dir + ":" + os.Getenv("PATH")}, s3test.Environment[2:]...)
}

// shell runs commands in the page's folder and returns their output. If a command fails, the test fails.
func (p *page) shell(text, where string, env ...string) string {
	text = p.here(text)
	cmd := exec.CommandContext(p.ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = p.dir, append(append(os.Environ(), p.environment()...), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(p.t, err, "%s\n%s\n%s%s", where, text, out, stderr.String())
	return string(out)
}

// write creates the file that a block shows.
func (p *page) write(b block) {
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, b.file()), []byte(p.here(b.text)), 0o600))
}

// check runs the command that reads a file shown in a block.
func (p *page) check(b block, where string) {
	switch command := shownFiles[b.file()]; {
	case strings.Contains(command, "cassia serve "):
		p.start(command, where)
	case b.file() == "mapping.yaml":
		_, err := kairosdb.ParseMapping([]byte(cassiatest.ReadText(p.t, filepath.Join(p.dir, b.file()))))
		require.NoError(p.t, err, where)
	case command != "":
		p.shell(command, where)
	}
}

// serve starts a server on ./data, if none is running.
func (p *page) serve() {
	if p.server == nil {
		var err error
		p.server, err = promrig.StartReady(p.ctx, promrig.Cassia(p.program, p.dir, p.address, "--no-self-monitoring"))
		require.NoError(p.t, err)
	}
}

func (p *page) stop() {
	if p.server != nil {
		require.NoError(p.t, p.server.Terminate(time.Minute))
		p.server = nil
	}
}

// start runs a command line of `cassia serve` with a separate store, and waits until the server is ready.
func (p *page) start(line, where string) {
	p.stop()
	line = strings.TrimSpace(p.here(line))
	require.Contains(p.t, line, "cassia serve", where)
	require.NoError(p.t, os.RemoveAll(filepath.Join(p.dir, "served")))
	if !strings.Contains(line, "exec ") {
		line = "exec " + line
	}
	line += " --storage.path=served"
	if !strings.Contains(line, "--web.listen-address=") {
		line += " --web.listen-address=" + p.address
	}
	server, err := promrig.StartReady(p.ctx, promrig.Program{
		Name: "cassia", Path: "bash", Args: []string{"-euc", "cd '" + p.dir + "'; " + line}, Env: p.environment(),
		Address: p.address, ReadyPath: "/-/ready",
		TLS: strings.Contains(line, "--web.config.file=") || strings.Contains(line, "cassia.env"),
		Log: filepath.Join(p.dir, "serve.log"),
	})
	require.NoError(p.t, err, "%s\n%s", where, line)
	require.NoError(p.t, server.Terminate(time.Minute), where)
}

// startPrometheus starts a Prometheus with the blocks that pages import.
func (p *page) startPrometheus() {
	if p.prometheus != "" {
		return
	}
	binary := cassiatest.Binary(p.t, "CASSIA_TEST_PROMETHEUS", "prometheus")
	p.prometheus = cassiatest.FreeAddress(p.t)
	program, err := promrig.Prometheus(binary, filepath.Join(p.dir, "prometheus"), p.prometheus, "")
	require.NoError(p.t, err)
	process, err := promrig.StartReady(p.ctx, program)
	require.NoError(p.t, err)
	p.t.Cleanup(process.Kill)
}

// startVictoria starts a server that responds like a VictoriaMetrics with the samples of ./out.jsonl.
func (p *page) startVictoria() {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/export", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(p.dir, "out.jsonl"))
	})
	server := httptest.NewServer(mux)
	p.t.Cleanup(server.Close)
	p.victoria = server.Listener.Addr().String()
}
