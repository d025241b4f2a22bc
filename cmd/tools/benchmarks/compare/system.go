package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// system is a server that is measured.
type system interface {
	name() string
	// program is the server with its data below dir.
	program(dir, address string) (promrig.Program, error)
	// finish brings everything into its final form.
	finish(ctx context.Context, url string) error
	// exact reports whether it answers PromQL as Prometheus does, and remote read.
	exact() bool
	// disk is the bytes of the data in its final form (0: not known any more), and of all that lies on disk.
	disk(dir string) (final, all int64, err error)
}

type prometheus struct{ path string }

func (prometheus) name() string { return "prometheus" }

func (prometheus) exact() bool { return true }

// program takes samples that are old by up to all of the load: its senders go through the load each at its own pace, and days
// of it take seconds.
func (p prometheus) program(dir, address string) (promrig.Program, error) {
	return promrig.Prometheus(p.path, dir, address, "global: {scrape_interval: 15s}\nstorage: {tsdb: {out_of_order_time_window: 365d}}\n",
		"--web.enable-remote-write-receiver", "--web.enable-admin-api", "--storage.tsdb.retention.time=365d",
		"--query.max-samples=500000000")
}

// finish takes a snapshot: that writes the head into a block, as compaction will later.
func (prometheus) finish(ctx context.Context, url string) error {
	return promrig.Post(ctx, url+"/api/v1/admin/tsdb/snapshot")
}

func (prometheus) disk(dir string) (int64, int64, error) {
	snapshots := filepath.Join(dir, "data", "snapshots")
	final, err := bench.DirBytes(snapshots)
	if err != nil {
		return 0, 0, err
	}
	// The snapshot is the benchmark's own doing, and mostly links to blocks that are counted already.
	if err := os.RemoveAll(snapshots); err != nil {
		return 0, 0, err
	}
	all, err := bench.DirBytes(filepath.Join(dir, "data"))
	return final, all, err
}

type victoria struct{ path string }

func (victoria) name() string { return "victoriametrics" }

// exact is false: MetricsQL has rates and look-back of its own, and there is no remote read.
func (victoria) exact() bool { return false }

// program lets queries see all samples, and has them compute what they answer each time, as the others do.
func (v victoria) program(dir, address string) (promrig.Program, error) {
	return promrig.Program{
		Name: "victoriametrics", Path: v.path, Address: address, ReadyPath: "/health", Log: filepath.Join(dir, "victoriametrics.log"),
		Args: []string{
			"-httpListenAddr=" + address, "-storageDataPath=" + filepath.Join(dir, "data"), "-retentionPeriod=1y", "-search.latencyOffset=0s",
			"-search.disableCache", "-search.maxPointsPerTimeseries=100000", "-search.maxUniqueTimeseries=1000000", "-loggerLevel=WARN",
		},
	}, nil
}

// finish merges the parts, as the background does by and by.
func (victoria) finish(ctx context.Context, url string) error {
	for _, path := range []string{"/internal/force_flush", "/internal/force_merge"} {
		if err := promrig.Post(ctx, url+path); err != nil {
			return err
		}
	}
	return nil
}

func (victoria) disk(dir string) (int64, int64, error) { return everything(dir) }

type cassia struct {
	path string
	// weeks: the load has weeks of rollups that are over, which are compacted.
	weeks bool
}

func (cassia) name() string { return "cassia" }

func (cassia) exact() bool { return true }

func (c cassia) program(dir, address string) (promrig.Program, error) {
	return promrig.Cassia(c.path, dir, address, "--retention.raw=365d"), nil
}

// finish seals all, and waits until rollups are compacted, which the background does minutes later.
func (c cassia) finish(ctx context.Context, url string) error {
	if err := promrig.Post(ctx, url+"/-/seal"); err != nil || !c.weeks {
		return err
	}
	const rounds, waiting = "cassia_downsample_rounds_total", "cassia_downsample_uncompacted_windows"
	begun := 0.0
	for {
		values, err := gauges(ctx, url, rounds, waiting)
		if err != nil {
			return err
		}
		if begun == 0 {
			begun = values[rounds]
		}
		if values[rounds] >= begun+2 && values[waiting] == 0 { // Listed by the first of them.
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// gauges reads metrics without labels.
func gauges(ctx context.Context, url string, names ...string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if !slices.Contains(names, name) {
			continue
		}
		if values[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
	}
	if len(values) != len(names) {
		return nil, fmt.Errorf("%s/metrics has %d of %d metrics", url, len(values), len(names))
	}
	return values, nil
}

func (cassia) disk(dir string) (int64, int64, error) { return everything(dir) }

// everything counts all there is: what an engine hasn't cleaned up yet belongs to what a user pays for.
func everything(dir string) (final, all int64, err error) {
	all, err = bench.DirBytes(filepath.Join(dir, "data"))
	return all, all, err
}

// settle waits until the server has stopped working by itself: it has used under a tenth of a core for two
// seconds in a row, or a minute has passed.
func settle(ctx context.Context, pid int) error {
	quiet := 0
	for range 60 {
		before, err := bench.ProcessUsage(pid)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		after, err := bench.ProcessUsage(pid)
		if err != nil {
			return err
		}
		if quiet++; after.CPU-before.CPU > 100*time.Millisecond {
			quiet = 0
		}
		if quiet == 2 {
			return nil
		}
	}
	return nil
}
