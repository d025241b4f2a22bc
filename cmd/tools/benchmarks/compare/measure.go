package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// result holds the costs of one system.
type result struct {
	system  string
	exact   bool
	load    bench.Report
	samples int64
	// cpu is the CPU time for the load and for bringing the data into its final form.
	cpu time.Duration
	// rss is the memory at the end of the load, and peak is the max memory until finish has ended.
	rss, peak int64
	// finalBytes and allBytes are disk usages, see system.disk. restedBytes and restedRSS are the disk usage and the
	// memory after the system was idle for a while.
	finalBytes, allBytes   int64
	restedBytes, restedRSS int64
	// restartLoaded is the time that a restart takes after the load, and restartFinished the time after finish.
	restartLoaded, restartFinished time.Duration
	// queries contains all queries, took their costs, and answers their results.
	queries []query
	took    []taken
	answers []promrig.Answer
}

// taken is the median duration of a query, and its mean CPU time in the server including background work.
type taken struct{ time, cpu time.Duration }

func measure(ctx context.Context, sys system, dir string, g *bench.Generator, s settings) (*result, error) {
	address, err := promrig.FreeAddress()
	if err != nil {
		return nil, err
	}
	program, err := sys.program(dir, address)
	if err != nil {
		return nil, err
	}
	process, err := promrig.StartReady(ctx, program)
	if err != nil {
		return nil, err
	}
	defer func() { process.Kill() }()
	out := &result{system: sys.name(), exact: sys.exact(), samples: g.Samples()}
	acks := bench.NewAcks(g.Workload)
	if err := out.send(ctx, process, g, acks, s); err != nil {
		return nil, err
	}
	if err := settle(ctx, process.PID()); err != nil {
		return nil, err
	}
	loaded, err := bench.ProcessUsage(process.PID())
	if err != nil {
		return nil, err
	}
	if s.queries {
		if process, out.restartLoaded, err = restart(ctx, process); err != nil {
			return nil, err
		}
	}
	if err := out.finish(ctx, sys, process, dir, loaded, s.rest); err != nil {
		return nil, err
	}
	if s.verify && sys.exact() {
		found, err := bench.Verify(ctx, g, acks, bench.Reader{URL: process.URL() + "/api/v1/read"})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "read back: %s\n", found)
		if !found.IsOK() {
			return nil, fmt.Errorf("what was read back isn't what was sent: %s", found)
		}
	}
	if process, out.restartFinished, err = restart(ctx, process); err != nil {
		return nil, err
	}
	if err := settle(ctx, process.PID()); err != nil {
		return nil, err
	}
	// Until the restart, samples may be stored both in a log and in their final location.
	if final, _, err := sys.disk(dir); err != nil {
		return nil, err
	} else if final > 0 {
		out.finalBytes = final
	}
	if s.queries {
		if err := out.query(ctx, process, g, s); err != nil {
			return nil, err
		}
	}
	return out, process.Terminate(time.Minute)
}

func (r *result) send(
	ctx context.Context, process *promrig.Process, g *bench.Generator, acks *bench.Acks, s settings,
) (err error) {
	if s.empty {
		return nil
	}
	r.load, err = bench.Run(ctx, g, acks, bench.Options{
		URL: process.URL() + "/api/v1/write", Protocol: bench.Protocol(s.protocol), Senders: s.senders, Rate: s.rate,
		PID: process.PID(), Progress: os.Stderr,
	})
	if err != nil {
		return err
	}
	r.rss = r.load.ServerRSS
	return r.load.Write(os.Stderr)
}

// rest waits while the system is idle, and then measures its disk usage and memory, as du and top would show them.
func (r *result) rest(ctx context.Context, sys system, process *promrig.Process, dir string, rest time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rest):
	}
	usage, err := bench.ProcessUsage(process.PID())
	if err != nil {
		return err
	}
	r.restedRSS = usage.RSS
	r.peak = max(r.peak, usage.PeakRSS)
	_, r.restedBytes, err = sys.disk(dir)
	return err
}

// finish brings the data into its final form. If a restart was measured, the restarted process does this, and its CPU
// time is counted from the end of the restart, because loading its data isn't part of ingestion. Background work
// between the restart and finish isn't counted in this case. Without queries there is no restart, and all background
// work is counted.
func (r *result) finish(
	ctx context.Context, sys system, process *promrig.Process, dir string, loaded bench.Usage, rest time.Duration,
) error {
	if err := settle(ctx, process.PID()); err != nil {
		return err
	}
	before, err := bench.ProcessUsage(process.PID())
	if err != nil {
		return err
	}
	if err := sys.finish(ctx, process.URL()); err != nil {
		return err
	}
	if err := settle(ctx, process.PID()); err != nil {
		return err
	}
	after, err := bench.ProcessUsage(process.PID())
	if err != nil {
		return err
	}
	if r.cpu = after.CPU; r.restartLoaded > 0 {
		r.cpu += loaded.CPU - before.CPU
	}
	r.peak = max(loaded.PeakRSS, after.PeakRSS)
	if r.finalBytes, r.allBytes, err = sys.disk(dir); err != nil {
		return err
	}
	return r.rest(ctx, sys, process, dir, rest)
}

// restart restarts a server and returns the time until it is ready.
func restart(ctx context.Context, process *promrig.Process) (*promrig.Process, time.Duration, error) {
	if err := process.Terminate(2 * time.Minute); err != nil {
		return process, 0, err
	}
	began := time.Now()
	again, err := promrig.StartReady(ctx, process.Program)
	if err != nil {
		return process, 0, err
	}
	return again, time.Since(began), nil
}

// query runs each query once to warm up, and then at least -repeat times and for at least the duration -ask.
func (r *result) query(ctx context.Context, process *promrig.Process, g *bench.Generator, s settings) error {
	api := promrig.API{URL: process.URL()}
	r.queries = queries(g)
	for _, q := range r.queries {
		answer, err := q.ask(ctx, api)
		if err != nil {
			return fmt.Errorf("%s: %w", q.text, err)
		}
		if len(answer.Series) == 0 {
			return fmt.Errorf("%s has no result", q.text)
		}
		took, err := q.measure(ctx, process, s)
		if err != nil {
			return fmt.Errorf("%s: %w", q.text, err)
		}
		r.took = append(r.took, took)
		r.answers = append(r.answers, answer)
	}
	return nil
}

func (q query) measure(ctx context.Context, process *promrig.Process, s settings) (taken, error) {
	before, err := bench.ProcessUsage(process.PID())
	if err != nil {
		return taken{}, err
	}
	var times []time.Duration
	for first := time.Now(); len(times) < s.repeat || time.Since(first) < s.ask; {
		began := time.Now()
		if _, err := q.ask(ctx, promrig.API{URL: process.URL()}); err != nil {
			return taken{}, err
		}
		times = append(times, time.Since(began))
	}
	after, err := bench.ProcessUsage(process.PID())
	if err != nil {
		return taken{}, err
	}
	slices.Sort(times)
	return taken{times[len(times)/2], (after.CPU - before.CPU) / time.Duration(len(times))}, nil
}
