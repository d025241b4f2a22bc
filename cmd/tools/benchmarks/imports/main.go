// Imports measures how long `cassia import blocks` takes for a history and, for comparison, how long it takes to send
// the same samples with remote write and to seal them. It prints a Markdown table:
//
//	bin/tools/benchmarks/imports -cassia bin/cassia -series 2000 -days 30 -interval 60s -kills 3
//
// (or `make bench-import`).
//
//	             ┌─► tsdb's BlockWriter ──► blocks ──► cassia import blocks ──► Pebble
//	generator ──┤
//	             └─► remote write ──► cassia serve ──► cassia downsample ──► Pebble
//
// With -kills, the import is killed (SIGKILL) and restarted the given number of times, and the result is verified
// against the blocks and with `cassia check`.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// settings holds the flags.
type settings struct {
	cassia, dir  string
	series, days int
	remoteDays   int
	interval     time.Duration
	kills        int
}

func main() {
	var s settings
	flag.StringVar(&s.cassia, "cassia", "bin/cassia", "Cassia's binary")
	flag.StringVar(
		&s.dir, "dir", "", "folder for blocks and stores, kept; a temporary one, removed at the end, if empty",
	)
	flag.IntVar(&s.series, "series", 2000, "how many series")
	flag.IntVar(&s.days, "days", 30, "days of history")
	flag.IntVar(&s.remoteDays, "remote-days", 3, "how many of them to send by remote write; 0: none")
	flag.DurationVar(&s.interval, "interval", time.Minute, "time between two samples of a series")
	flag.IntVar(&s.kills, "kills", 0, "how often to kill the import")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintf(os.Stderr, "imports: %s\n", err)
		os.Exit(1)
	}
}

// cost holds the measured costs of the import or of remote write with sealing.
type cost struct {
	what      string
	samples   int64
	took, cpu time.Duration
	disk      int64
}

func run(ctx context.Context, s settings) (err error) {
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "cassia-imports"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(s.dir) }()
	}
	end := time.Now().UTC().Truncate(24 * time.Hour)
	w := bench.Workload{
		Series: s.series, Steps: int(time.Duration(s.days) * 24 * time.Hour / s.interval),
		IntervalMs: s.interval.Milliseconds(), StartMs: end.AddDate(0, 0, -s.days).UnixMilli() + 1,
	}
	blocks := filepath.Join(s.dir, "blocks")
	if _, err := os.Stat(blocks); err != nil {
		if err := writeBlocks(ctx, w, s.days, blocks); err != nil {
			return err
		}
	}
	var costs []cost
	imported, err := s.imported(ctx, blocks, w)
	if err != nil {
		return err
	}
	costs = append(costs, imported)
	if s.remoteDays > 0 {
		w.StartMs = end.AddDate(0, 0, -s.remoteDays).UnixMilli() + 1
		w.Steps = int(time.Duration(s.remoteDays) * 24 * time.Hour / s.interval)
		sent, err := s.sent(ctx, w)
		if err != nil {
			return err
		}
		costs = append(costs, sent)
	}
	fmt.Println("| way | samples | took | samples/s | CPU-s a million | bytes a sample |")
	fmt.Println("|---|--:|--:|--:|--:|--:|")
	for _, c := range costs {
		fmt.Printf("| %s | %d | %s | %.0f | %.2f | %.2f |\n", c.what, c.samples, c.took.Round(100*time.Millisecond),
			float64(c.samples)/c.took.Seconds(), c.cpu.Seconds()/float64(c.samples)*1e6,
			float64(c.disk)/float64(c.samples))
	}
	return nil
}

// imported imports the blocks, kills the import if requested, and verifies the result.
func (s settings) imported(ctx context.Context, blocks string, w bench.Workload) (c cost, err error) {
	data := filepath.Join(s.dir, "imported")
	if err := os.RemoveAll(data); err != nil {
		return c, err
	}
	c = cost{what: "`cassia import blocks`", samples: w.Samples()}
	checkpoint := filepath.Join(s.dir, "checkpoint.json")
	_ = os.Remove(checkpoint) // It belongs to an earlier run.
	args := []string{
		"import", "blocks", "--storage.path=" + data, "--retention.raw=0", "--checkpoint=" + checkpoint, blocks,
	}
	for range s.kills {
		// Kill each run after about a quarter of the import, but not before 0.1 s.
		after := time.Duration(float64(w.Samples()) / 4e6 * (0.2 + rand.Float64()) * float64(time.Second))
		took, cpu, _, err := s.command(ctx, max(after, 100*time.Millisecond), args...)
		if err != nil {
			return c, err
		}
		c.took, c.cpu = c.took+took, c.cpu+cpu
		text, _ := os.ReadFile(checkpoint)
		fmt.Fprintf(os.Stderr, "killed after %s; checkpoint: %d bytes\n", took.Round(time.Millisecond), len(text))
	}
	took, cpu, out, err := s.command(ctx, 0, args...)
	if err != nil {
		return c, err
	}
	fmt.Fprint(os.Stderr, out)
	c.took, c.cpu = c.took+took, c.cpu+cpu
	if s.kills > 0 {
		c.what += fmt.Sprintf(", killed %d times", s.kills)
	}
	if c.disk, err = bench.DirBytes(data); err != nil {
		return c, err
	}
	for _, args := range [][]string{append(args, "--verify"), {"check", "--storage.path=" + data}} {
		_, cpu, out, err := s.command(ctx, 0, args...)
		if err != nil {
			return c, err
		}
		fmt.Fprintf(os.Stderr, "%s%s of CPU\n", out, cpu.Round(time.Millisecond))
	}
	return c, nil
}

// command runs cassia with these arguments and kills it after the given time; 0: never.
func (s settings) command(
	ctx context.Context, killAfter time.Duration, args ...string,
) (took, cpu time.Duration, out string, err error) {
	cmd := exec.CommandContext(ctx, s.cassia, args...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, "", err
	}
	if killAfter > 0 {
		timer := time.AfterFunc(killAfter, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err = cmd.Wait()
	took, cpu = time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	if err != nil && killAfter == 0 {
		return took, cpu, "", fmt.Errorf("cassia %v: %w: %s", args, err, text.String())
	}
	return took, cpu, text.String(), nil
}

// sent sends the samples with remote write and seals them.
func (s settings) sent(ctx context.Context, w bench.Workload) (c cost, err error) {
	c = cost{what: "remote write and sealing", samples: w.Samples()}
	data := filepath.Join(s.dir, "sent")
	if err := os.RemoveAll(data); err != nil {
		return c, err
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return c, err
	}
	address, err := promrig.FreeAddress()
	if err != nil {
		return c, err
	}
	p, err := promrig.StartReady(ctx, promrig.Cassia(s.cassia, data, address, "--retention.raw=0"))
	if err != nil {
		return c, err
	}
	defer p.Kill()
	g, err := bench.NewGenerator(w)
	if err != nil {
		return c, err
	}
	began := time.Now()
	o := bench.Options{URL: p.URL() + "/api/v1/write", Protocol: bench.V2, Progress: bufio.NewWriter(os.Stderr)}
	if _, err := bench.Run(ctx, g, bench.NewAcks(w), o); err != nil {
		return c, err
	}
	used, err := bench.ProcessUsage(p.PID())
	if err != nil {
		return c, err
	}
	if err := p.Terminate(time.Minute); err != nil {
		return c, err
	}
	_, cpu, out, err := s.command(
		ctx, 0, "downsample", "--storage.path="+filepath.Join(data, "data"), "--retention.raw=0",
	)
	if err != nil {
		return c, err
	}
	fmt.Fprint(os.Stderr, out)
	c.took, c.cpu = time.Since(began), used.CPU+cpu
	c.disk, err = bench.DirBytes(data)
	return c, err
}
