package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/soak"
)

// importLoad continuously sends samples to a server: of a separate series, and of the history that is being imported.
type importLoad struct {
	url string
	// first is the start of the history, and days is its length.
	first time.Time
	days  int
	// live is the number of acknowledged samples of the separate series. The same number of samples of the history was
	// sent.
	live int
}

func (s *importLoad) run(ctx context.Context) {
	began := time.Now().Add(-time.Hour)
	for k := 0; ctx.Err() == nil; k++ {
		r := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
			Labels:  []prompb.Label{{Name: "__name__", Value: "live"}},
			Samples: []prompb.Sample{{Timestamp: began.UnixMilli() + int64(k), Value: float64(k)}},
		}}}
		// This sample is one of those that writeBlocks writes.
		m, i := k*61%(s.days*1440), k%5
		r.Timeseries = append(r.Timeseries, prompb.TimeSeries{
			Labels: []prompb.Label{
				{Name: "__name__", Value: fmt.Sprint("metric_", i)}, {Name: "host", Value: fmt.Sprint("h", i)},
			},
			Samples: []prompb.Sample{{
				Timestamp: s.first.Add(time.Duration(m)*time.Minute + time.Duration(i)*time.Second).UnixMilli(),
				Value:     float64(m * i % 977),
			}},
		})
		body, err := r.Marshal()
		if err != nil {
			panic(err)
		}
		for ctx.Err() == nil && !s.send(ctx, body) {
			time.Sleep(20 * time.Millisecond) // The server is down.
		}
	}
}

func (s *importLoad) send(ctx context.Context, body []byte) bool {
	post, err := http.NewRequestWithContext(
		ctx, http.MethodPost, s.url+"/api/v1/write", bytes.NewReader(snappy.Encode(nil, body)),
	)
	if err != nil {
		return false
	}
	post.Header.Set("Content-Type", "application/x-protobuf")
	post.Header.Set("Content-Encoding", "snappy")
	answer, err := http.DefaultClient.Do(post)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return false
	}
	s.live++
	return true
}

// TestImportOverHTTP checks an import into a running server that uses a directory, see importIntoServers. An import
// into the directory itself must fail while the server runs.
func TestImportOverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary on 100,000 samples: leave -short out")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	binary, dir := builtCassia(t), t.TempDir()
	servers, blocks := importIntoServers(ctx, t, binary, promrig.Cassia(
		binary, dir, cassiatest.FreeAddress(t), "--retention.raw=0", "--no-self-monitoring", "--storage.settle=0s",
	))
	// The server uses the directory, so the command fails. Its error names the remedy.
	_, errs, status := cassiatest.Command(
		t, binary, "import", "blocks", "--storage.path="+filepath.Join(dir, "data"), "--retention.raw=0", blocks,
	)
	require.Equal(t, 1, status)
	require.Contains(t, errs,
		"in use by another process; stop that process, or choose another directory; if that process is Cassia, import through it while it runs: use --url")
	require.Contains(t, errs, "--url=http://localhost:9201")
	require.NoError(t, servers[0].Terminate(cassiatest.StopWithin))
	out, errs, status := cassiatest.Command(t, binary, "check", "--storage.path="+filepath.Join(dir, "data"))
	require.Zero(t, status, out+errs)
}

// TestImportOverHTTPOnCassandra checks an import into one of two servers on a keyspace, see importIntoServers. The
// other server accepts samples in the meantime, and both servers seal.
func TestImportOverHTTPOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary on 100,000 samples: leave -short out")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	binary, engine := builtCassia(t), cassiatest.OnCassandra(t)
	flags := append(
		[]string{"--retention.raw=0", "--no-self-monitoring", "--storage.settle=0s", "--storage.partitions=4"},
		engine...,
	)
	servers, _ := importIntoServers(
		ctx, t, binary, promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
		promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
	)
	for _, server := range servers {
		require.NoError(t, server.Terminate(cassiatest.StopWithin))
	}
	out, errs, status := cassiatest.Command(t, binary, append([]string{"check"}, engine...)...)
	require.Zero(t, status, out+errs)
}

// importIntoServers imports blocks into the first server. In the meantime, the last server accepts samples, including
// samples of the same history, and all servers seal. The command is killed and run again. Then the first server is
// killed while the command runs, and is started again. After the import, each server must return every sample exactly
// once.
func importIntoServers(
	ctx context.Context, t *testing.T, binary string, programs ...promrig.Program,
) (servers []*promrig.Process, blocks string) {
	dir := t.TempDir()
	blocks = filepath.Join(dir, "blocks")
	require.NoError(t, os.Mkdir(blocks, 0o755))
	const days = 10
	first, samples := cassiatest.WriteBlocks(t, blocks, days, 7)
	servers = startAll(ctx, t, programs...)
	load := &importLoad{url: servers[len(servers)-1].URL(), first: first, days: days}
	loading, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { load.run(loading) })
	defer func() { stop(); running.Wait() }()

	args := []string{
		"import", "blocks", "--url=" + servers[0].URL(), "--checkpoint=" + filepath.Join(dir, "checkpoint"), blocks,
	}
	out, errs, status := cassiatest.Command(t, binary, append(args, "--dry-run")...)
	require.Zero(t, status, errs)
	require.Contains(t, out, fmt.Sprintf("7 series, %d samples", samples))
	seed := soak.Seed(t)
	began := time.Now()
	at := func(what string) { t.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond)) }
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2 {
		cmd := exec.CommandContext(ctx, binary, args...)
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(50+r.IntN(300))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // It was killed, or finished before that.
		timer.Stop()
	}
	// Kill the server shortly after the command was started, usually while it imports.
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, append(args, "--verify")...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(time.Duration(100+r.IntN(400))*time.Millisecond, servers[0].Kill)
	defer kill.Stop()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	<-time.After(time.Second)
	servers[0].Kill()
	servers[0] = start(ctx, t, programs[0])
	at("killed and started again")
	if err := <-ended; err != nil { // The server was down before the command connected.
		require.Contains(t, stderr.String(), "--url=")
	}
	at("the command ended")
	out, errs, status = cassiatest.Command(t, binary, append(args, "--verify")...)
	at("verified")
	require.Zero(t, status, out+errs)
	require.Contains(t, out, fmt.Sprintf("verified %d samples", samples))
	require.Contains(t, out, ": 0 differences")
	stop()
	running.Wait()
	require.Positive(t, load.live)

	// The last request may have been accepted although its client was stopped before the response.
	live := fmt.Sprintf(`"(%d|%d)"`, load.live, load.live+1)
	for range 2 { // Before and after all samples are sealed.
		for _, server := range servers {
			count := func(series string) string {
				var answer promrig.Answer
				require.NoError(t, patiently(func() (err error) {
					answer, err = promrig.API{URL: server.URL()}.Query(
						ctx, "sum(count_over_time("+series+"[20d]))", time.Now(),
					)
					return err
				}))
				return fmt.Sprint(answer)
			}
			require.Contains(t, count(`{__name__=~"metric_.*"}`), fmt.Sprintf("%q", fmt.Sprint(samples)))
			require.Regexp(t, live, count("live"))
		}
		require.NoError(t, patiently(func() error { return promrig.PostEmpty(ctx, servers[0].URL()+"/-/seal") }))
		at("counted and sealed")
	}
	return servers, blocks
}
