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
	// endProgress clears the progress line. It is nil if there is no progress line to clear.
	endProgress func()
}

func addBench(app *kingpin.Application) subcommand {
	cmd := app.Command("bench", "Send generated samples to any server that accepts remote write, and measure how it "+
		"performs. Sample values are reproducible, so stored samples can be compared with sent ones.")
	c := &benchConfig{}
	declareBench(cmd, c)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		progress, every, end := progressOn(os.Stderr)
		c.options.ProgressEvery, c.endProgress = every, end
		return c.run(ctx, time.Now(), stdout, progress)
	}}
}

func declareBench(cmd *kingpin.CmdClause, c *benchConfig) {
	cmd.Flag("url", "Remote write URL to send to.").Default("http://localhost:9201/api/v1/write").
		StringVar(&c.options.URL)
	cmd.Flag("protocol", "Remote write version.").Default("1.0").EnumVar(&c.protocol,
		string(bench.V1), string(bench.V2))
	cmd.Flag("tenant",
		"Value of the X-Scope-OrgID header. If empty, the header is not sent.").StringVar(&c.options.Tenant)
	cmd.Flag("senders", "Number of concurrent requests.").Default("4").IntVar(&c.options.Senders)
	cmd.Flag("request-samples", "Maximum number of samples per request.").Default("2000").
		IntVar(&c.options.RequestSamples)
	cmd.Flag("retry-for", "How long to retry a failed request before giving up.").Default("1m").
		DurationVar(&c.options.RetryFor)

	cmd.Flag(
		"series",
		"Number of active series. Each simulated target exposes 1000 series of a node exporter and of applications.",
	).Default("20000").IntVar(&c.workload.Series)
	cmd.Flag("interval", "Scrape interval: time between two samples of a series.").Default("15s").
		DurationVar(&c.interval)
	cmd.Flag("duration", "Time range that the samples cover.").Default("1h").DurationVar(&c.duration)
	cmd.Flag("start",
		"Time of the first sample: RFC 3339, or a duration before now, such as 6h. Default: --duration before now, "+
			"or now if --speed is set.").
		StringVar(&c.start)
	cmd.Flag("speed", "Speed relative to real time; 0 sends as fast as possible.").Default("0").
		Float64Var(&c.options.Speed)
	cmd.Flag("rate", "Maximum number of samples sent per second; 0 means no limit.").Default("0").
		Float64Var(&c.options.Rate)
	cmd.Flag(
		"churn", "Churn: how many times per hour all targets are replaced by new ones, from 0 to 60, such as 0.1.",
	).Default("0").Float64Var(&c.workload.ChurnPerHour)
	cmd.Flag("histograms", "Number of native histograms among the 1000 series of each target.").Default("0").
		IntVar(&c.workload.Histograms)
	cmd.Flag("odd", "Number of series per target with NaN, infinities and other special values.").Default("0").
		IntVar(&c.workload.Odd)
	cmd.Flag("late-percent", "Percentage of samples that are sent late, and therefore out of order.").Default("0").
		IntVar(&c.workload.LatePercent)
	cmd.Flag("late-steps", "How late the late samples are sent, in scrape intervals.").Default("10").
		IntVar(&c.workload.LateSteps)
	cmd.Flag("extra-labels", "Number of labels to add to every series.").Default("0").IntVar(&c.workload.ExtraLabels)
	cmd.Flag("seed", "Seed of the generator; another seed gives other sample values.").Default("1").
		Uint64Var(&c.workload.Seed)

	cmd.Flag(
		"pid", "Process ID of the server, if it runs on this machine (Linux): the report includes its CPU and memory.",
	).IntVar(&c.options.PID)
	cmd.Flag("dir", "Data directory of the server: the report includes its size.").StringVar(&c.options.Dir)
	cmd.Flag("json", "Print the report as JSON.").BoolVar(&c.asJSON)
	cmd.Flag("verify",
		"After sending, read all samples back through remote read and compare them bit by bit.").BoolVar(&c.verify)
	cmd.Flag("read-url",
		`Remote read URL. Default: the remote write URL with "read" instead of "write".`).StringVar(&c.readURL)
	cmd.Flag("ack-log", "File in which to record the acknowledged samples.").StringVar(&c.ackLog)
	cmd.Flag("verify-log",
		"Don't send samples; read back the samples recorded in this file and compare them.").StringVar(&c.verifyLog)
}

// setDefaults sets the options that depend on other flags.
func (c *benchConfig) setDefaults(now time.Time) error {
	c.options.Protocol = bench.Protocol(c.protocol)
	if c.readURL == "" {
		base, ok := strings.CutSuffix(c.options.URL, "/write")
		if !ok && (c.verify || c.verifyLog != "") {
			return errors.New("--url doesn't end in /write; set the remote read URL with --read-url")
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
			return fmt.Errorf("--start=%s: must be a time such as 2027-01-01T00:00:00Z, or a duration such as 6h",
				c.start)
		}
		w.StartMs = at.UnixMilli()
	}
	return w.Validate()
}

func (c *benchConfig) run(ctx context.Context, now time.Time, out, progress io.Writer) error {
	if err := c.setDefaults(now); err != nil {
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

// errDamaged means that a server doesn't return all samples that it acknowledged, or returns other samples.
var errDamaged = errors.New("the samples read back differ from the acknowledged samples")

func (c *benchConfig) compare(ctx context.Context, g *bench.Generator, acks *bench.Acks, out io.Writer) error {
	found, err := bench.Verify(ctx, g, acks, bench.Reader{URL: c.readURL, Tenant: c.options.Tenant})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "read back     %s\n", found); err != nil {
		return err
	}
	if !found.IsOK() {
		return errDamaged
	}
	return nil
}
