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

// system is a measured server.
type system interface {
	name() string
	// program returns the server program with its data below dir.
	program(dir, address string) (promrig.Program, error)
	// finish brings all data into its final form.
	finish(ctx context.Context, url string) error
	// exact reports whether the system evaluates PromQL exactly as Prometheus does, and supports remote read.
	exact() bool
	// disk returns the size of the data in its final form (0 if unknown) and the size of all files, in bytes.
	disk(dir string) (final, all int64, err error)
}

type prometheus struct{ path string }

func (prometheus) name() string { return "prometheus" }

func (prometheus) exact() bool { return true }

// program configures Prometheus to accept samples as old as the whole load: each sender sends its part at its own
// speed, and days of samples take only seconds.
func (p prometheus) program(dir, address string) (promrig.Program, error) {
	return promrig.Prometheus(
		p.path, dir, address, "global: {scrape_interval: 15s}\nstorage: {tsdb: {out_of_order_time_window: 365d}}\n",
		"--web.enable-remote-write-receiver", "--web.enable-admin-api", "--storage.tsdb.retention.time=365d",
		"--query.max-samples=500000000",
	)
}

// finish takes a snapshot, which writes the head to a block, as compaction would do later.
func (prometheus) finish(ctx context.Context, url string) error {
	return promrig.PostEmpty(ctx, url+"/api/v1/admin/tsdb/snapshot")
}

func (prometheus) disk(dir string) (int64, int64, error) {
	snapshots := filepath.Join(dir, "data", "snapshots")
	final, err := bench.DirBytes(snapshots)
	if err != nil {
		return 0, 0, err
	}
	// Only the benchmark makes the snapshot. Most of it consists of links to blocks that are already counted.
	if err := os.RemoveAll(snapshots); err != nil {
		return 0, 0, err
	}
	all, err := bench.DirBytes(filepath.Join(dir, "data"))
	return final, all, err
}

type victoria struct{ path string }

func (victoria) name() string { return "victoriametrics" }

// exact returns false because MetricsQL computes rates and look-back differently, and remote read isn't supported.
func (victoria) exact() bool { return false }

// program configures VictoriaMetrics so that queries return all samples. It disables the cache of results, because the
// other systems don't have one.
func (v victoria) program(dir, address string) (promrig.Program, error) {
	return promrig.Program{
		Name: "victoriametrics", Path: v.path, Address: address, ReadyPath: "/health",
		Log: filepath.Join(dir, "victoriametrics.log"),
		Args: []string{
			"-httpListenAddr=" + address, "-storageDataPath=" + filepath.Join(dir, "data"), "-retentionPeriod=1y",
			"-search.latencyOffset=0s", "-search.disableCache", "-search.maxPointsPerTimeseries=100000",
			"-search.maxUniqueTimeseries=1000000", "-loggerLevel=WARN",
		},
	}, nil
}

// finish merges all parts, as background merges would do over time.
func (victoria) finish(ctx context.Context, url string) error {
	for _, path := range []string{"/internal/force_flush", "/internal/force_merge"} {
		if err := promrig.PostEmpty(ctx, url+path); err != nil {
			return err
		}
	}
	return nil
}

func (victoria) disk(dir string) (int64, int64, error) { return everything(dir) }

type cassia struct {
	path string
	// weeks is set if the load extends over complete weeks, whose rollups are compacted.
	weeks bool
}

func (cassia) name() string { return "cassia" }

func (cassia) exact() bool { return true }

func (c cassia) program(dir, address string) (promrig.Program, error) {
	return promrig.Cassia(c.path, dir, address, "--retention.raw=365d"), nil
}

// finish seals all samples and waits until the rollups are compacted. The background loop would do both minutes later.
func (c cassia) finish(ctx context.Context, url string) error {
	if err := promrig.PostEmpty(ctx, url+"/-/seal"); err != nil || !c.weeks {
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
		if values[rounds] >= begun+2 && values[waiting] == 0 { // The first of these two passes has listed the windows.
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

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

// everything counts all files as final, because the disk space of data that the engine hasn't cleaned up yet also costs
// money.
func everything(dir string) (final, all int64, err error) {
	all, err = bench.DirBytes(filepath.Join(dir, "data"))
	return all, all, err
}

// settle waits until the server uses less than a tenth of a core in two consecutive seconds, but at most a minute.
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
