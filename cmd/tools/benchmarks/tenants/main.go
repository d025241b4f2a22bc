// Tenants measures how much two misbehaving tenants affect the other tenants of a server. It prints the latencies of
// the other tenants' writes and queries, without and with a tenant that is far above its limits and a tenant that sends
// garbage:
//
//	bin/tools/benchmarks/tenants -cassia bin/cassia
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// limits contains the limits of the greedy tenant. The others have none.
const limits = `tenants:
  greedy:
    samples_per_second: 5000
    samples_burst: 10000
    active_series: 5000
    query_series: 1000
    queries: 1
    queries_waiting: 2
  garbage:
    queries: 1
    request_bytes: 1MiB
`

func main() {
	var load bench.TenantLoad
	cassia := flag.String("cassia", "bin/cassia", "Cassia's binary")
	flag.IntVar(&load.Tenants, "tenants", 100, "tenants that behave")
	flag.IntVar(&load.Series, "series", 100, "series of each")
	flag.DurationVar(
		&load.Interval, "interval", time.Second, "time between two requests, and between two queries, of each",
	)
	flag.DurationVar(&load.For, "for", 30*time.Second, "how long each of the two parts lasts")
	bad := flag.Int("bad", 4, "requests that each of the bad tenants has under way, of each kind")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, *cassia, load, *bad); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// compare measures both cases, each on a new server, and prints the table.
func compare(ctx context.Context, cassia string, load bench.TenantLoad, bad int) error {
	without, err := measure(ctx, cassia, load)
	if err != nil {
		return err
	}
	load.Bad = bad
	with, err := measure(ctx, cassia, load)
	if err != nil {
		return err
	}
	fmt.Printf("%d tenants, each with %d series and a query every %s, for %s\n\n",
		load.Tenants, load.Series, load.Interval, load.For)
	fmt.Println("| | alone | beside a greedy tenant and one that sends garbage | ratio |\n|---|---:|---:|---:|")
	row := func(what string, a, b time.Duration) {
		fmt.Printf("| %s | %s | %s | %.1f |\n", what, a.Round(10*time.Microsecond), b.Round(10*time.Microsecond),
			float64(b)/float64(max(a, 1)))
	}
	row("acknowledged after, median", without.Ack.P50, with.Ack.P50)
	row("… 99 %", without.Ack.P99, with.Ack.P99)
	row("query answered after, median", without.Query.P50, with.Query.P50)
	row("… 99 %", without.Query.P99, with.Query.P99)
	fmt.Printf("| requests that failed | %d of %d | %d of %d | |\n",
		without.Ack.Failed+without.Query.Failed, without.Ack.Requests+without.Query.Requests,
		with.Ack.Failed+with.Query.Failed, with.Ack.Requests+with.Query.Requests)
	for _, text := range []string{without.Ack.Example, without.Query.Example, with.Ack.Example, with.Query.Example} {
		if text != "" {
			fmt.Printf("failed: %s\n", text)
		}
	}
	fmt.Printf("\nanswers to the bad ones, by status: %v\n", with.Bad)
	return nil
}

// measure runs a load on a new server.
func measure(ctx context.Context, cassia string, load bench.TenantLoad) (report bench.TenantLoadReport, err error) {
	dir, err := os.MkdirTemp("", "cassia-tenants")
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "limits.yaml")
	if err := os.WriteFile(file, []byte(limits), 0o600); err != nil {
		return report, err
	}
	address, err := promrig.FreeAddress()
	if err != nil {
		return report, err
	}
	process, err := promrig.StartReady(ctx, promrig.Cassia(cassia, dir, address, "--limits.file="+file))
	if err != nil {
		return report, err
	}
	load.URL = process.URL()
	report = load.Run(ctx)
	return report, process.Terminate(time.Minute)
}
