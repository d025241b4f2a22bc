package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/bench"
)

// benchConfig holds the flags of cassia bench.
type benchConfig struct {
	workload          bench.Workload
	options           bench.Options
	interval          time.Duration
	duration          time.Duration
	start, protocol   string
	readURL           string
	ackLog, verifyLog string
	verify, asJSON    bool
	// endProgress makes room where progress was shown; nil: it needs none.
	endProgress func()
}

func addBench(app *kingpin.Application) subcommand {
	cmd := app.Command("bench", "Send generated samples to any server that takes remote write, and measure it. "+
		"Every value can be computed again, so what was stored can be compared with what was sent.")
	c := &benchConfig{}
	declareBench(cmd, c)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		progress, every, end := progressOn(os.Stderr)
		c.options.ProgressEvery, c.endProgress = every, end
		return c.run(ctx, time.Now(), os.Stdout, progress)
	}}
}

func declareBench(cmd *kingpin.CmdClause, c *benchConfig) {
	cmd.Flag("url", "Where to send: a remote write URL.").Default("http://localhost:9201/api/v1/write").StringVar(&c.options.URL)
	cmd.Flag("protocol", "Version of remote write.").Default("1.0").EnumVar(&c.protocol, string(bench.V1), string(bench.V2))
	cmd.Flag("tenant", "Value of the header X-Scope-OrgID; none is sent if empty.").StringVar(&c.options.Tenant)
	cmd.Flag("senders", "Requests at one time.").Default("4").IntVar(&c.options.Senders)
	cmd.Flag("request-samples", "Samples in a request, at most.").Default("2000").IntVar(&c.options.RequestSamples)
	cmd.Flag("retry-for", "How long a request is tried again before giving up.").Default("1m").DurationVar(&c.options.RetryFor)

	cmd.Flag("series", "Series at one time: those of a node exporter and its applications, 1000 a target.").Default("20000").IntVar(&c.workload.Series)
	cmd.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&c.interval)
	cmd.Flag("duration", "Time that the samples cover.").Default("1h").DurationVar(&c.duration)
	cmd.Flag("start", "Time of the first sample: RFC 3339, or how long ago, such as 6h. Default: so that the last one is now; in real time, now.").StringVar(&c.start)
	cmd.Flag("speed", "How many times faster than real time to send; 0: as fast as possible.").Default("0").Float64Var(&c.options.Speed)
	cmd.Flag("rate", "Samples a second, at most; 0: no limit.").Default("0").Float64Var(&c.options.Rate)
	cmd.Flag("churn", "Share of the targets that is replaced by new ones in an hour: 0 to 60.").Default("0").Float64Var(&c.workload.ChurnPerHour)
	cmd.Flag("histograms", "Native histograms among the 1000 series of a target.").Default("0").IntVar(&c.workload.Histograms)
	cmd.Flag("odd", "Series of NaN, infinities and other odd values in each target.").Default("0").IntVar(&c.workload.Odd)
	cmd.Flag("late-percent", "Share of the samples that are sent late, so out of order.").Default("0").IntVar(&c.workload.LatePercent)
	cmd.Flag("late-steps", "How many intervals late those are sent.").Default("10").IntVar(&c.workload.LateSteps)
	cmd.Flag("extra-labels", "Labels of each series besides a node exporter's.").Default("0").IntVar(&c.workload.ExtraLabels)
	cmd.Flag("seed", "Changes all values.").Default("1").Uint64Var(&c.workload.Seed)

	cmd.Flag("pid", "Process of the server, if it runs on this machine (Linux): reports its CPU and memory.").IntVar(&c.options.PID)
	cmd.Flag("dir", "Directory of the server's data: reports its size.").StringVar(&c.options.Dir)
	cmd.Flag("json", "Write the report as JSON.").BoolVar(&c.asJSON)
	cmd.Flag("verify", "Afterwards, read everything back by remote read and compare it bit by bit.").BoolVar(&c.verify)
	cmd.Flag("read-url", "Remote read URL. Default: that of remote write, with read for write.").StringVar(&c.readURL)
	cmd.Flag("ack-log", "File to write into which samples were acknowledged.").StringVar(&c.ackLog)
	cmd.Flag("verify-log", "Send nothing: read back and compare what such a file says was acknowledged.").StringVar(&c.verifyLog)
}

// complete derives what the flags leave open.
func (c *benchConfig) complete(now time.Time) error {
	c.options.Protocol = bench.Protocol(c.protocol)
	if c.readURL == "" {
		base, ok := strings.CutSuffix(c.options.URL, "/write")
		if !ok && (c.verify || c.verifyLog != "") {
			return errors.New("--url doesn't end in /write, so say where to read with --read-url")
		}
		c.readURL = base + "/read"
	}
	w := &c.workload
	w.IntervalMs = c.interval.Milliseconds()
	if w.IntervalMs <= 0 {
		return fmt.Errorf("--interval=%s: must be at least 1ms", c.interval)
	}
	w.Steps = int(c.duration / c.interval)
	switch ago, err := time.ParseDuration(c.start); {
	case c.start == "" && c.options.Speed > 0:
		w.StartMs = now.UnixMilli()
	case c.start == "":
		w.StartMs = now.Add(-c.duration).UnixMilli()
	case err == nil:
		w.StartMs = now.Add(-ago).UnixMilli()
	default:
		at, err := time.Parse(time.RFC3339, c.start)
		if err != nil {
			return fmt.Errorf("--start=%s: neither RFC 3339 nor a duration", c.start)
		}
		w.StartMs = at.UnixMilli()
	}
	return w.Validate()
}

func (c *benchConfig) run(ctx context.Context, now time.Time, out, progress io.Writer) error {
	if err := c.complete(now); err != nil {
		return err
	}
	if c.verifyLog != "" {
		return c.verifyFile(ctx, out)
	}
	g, err := bench.NewGenerator(c.workload)
	if err != nil {
		return err
	}
	acks := bench.NewAcks(c.workload)
	c.options.Progress = progress
	report, runErr := bench.Run(ctx, g, acks, c.options)
	if c.endProgress != nil {
		c.endProgress()
	}
	if c.ackLog != "" {
		runErr = errors.Join(runErr, writeFile(c.ackLog, acks.Write))
	}
	if err := c.writeReport(report, out); err != nil {
		return errors.Join(runErr, err)
	}
	if runErr != nil || !c.verify {
		return runErr
	}
	return c.compare(ctx, g, acks, out)
}

func (c *benchConfig) writeReport(report bench.Report, out io.Writer) error {
	if c.asJSON {
		return json.NewEncoder(out).Encode(report)
	}
	return report.Write(out)
}

func writeFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

func (c *benchConfig) verifyFile(ctx context.Context, out io.Writer) error {
	f, err := os.Open(c.verifyLog)
	if err != nil {
		return err
	}
	defer f.Close()
	acks, err := bench.ReadAcks(f)
	if err != nil {
		return err
	}
	g, err := bench.NewGenerator(acks.Workload())
	if err != nil {
		return err
	}
	return c.compare(ctx, g, acks, out)
}

// errDamaged means that a server doesn't have what it acknowledged.
var errDamaged = errors.New("what was read back isn't what was acknowledged")

func (c *benchConfig) compare(ctx context.Context, g *bench.Generator, acks *bench.Acks, out io.Writer) error {
	found, err := bench.Verify(ctx, g, acks, bench.Reader{URL: c.readURL, Tenant: c.options.Tenant})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "read back     %s\n", found); err != nil {
		return err
	}
	if !found.OK() {
		return errDamaged
	}
	return nil
}
