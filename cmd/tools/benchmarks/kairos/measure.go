package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// rig is a system with its Cassandra cluster and the settings.
type rig struct {
	system
	settings
	cluster *cassandratest.Cluster
	dir     string
	process *promrig.Process
}

// cost holds the CPU times of the system and of Cassandra.
type cost struct{ system, cassandra time.Duration }

func (c cost) both() time.Duration { return c.system + c.cassandra }
func (c cost) minus(before cost) cost {
	return cost{c.system - before.system, c.cassandra - before.cassandra}
}

// result holds the costs of one system.
type result struct {
	system string
	// samples is the number of measured samples. stored also counts the warm-up.
	samples, stored int64
	// load is the cost until all samples are in Cassandra. all is the cost until they are in their final form and
	// compacted.
	load, all cost
	// acknowledged is the time until the response to the last request.
	acknowledged time.Duration
	disk         int64
	// answer is the median duration of the query, and query is its mean cost.
	answer time.Duration
	query  cost
	sums   sums
}

func (r *rig) start(ctx context.Context) error {
	root, err := promrig.Root()
	if err != nil {
		return err
	}
	address, err := promrig.FreeAddress()
	if err != nil {
		return err
	}
	r.process, err = promrig.StartReady(ctx, r.program(root, r.dir, address, r.cluster.Hosts()))
	return err
}

func (r *rig) stop() {
	// An error here is a timeout or Java's exit status, which always reports the signal. All measurements are complete.
	_ = r.process.Terminate(time.Minute)
}

// warm sends the data for the warm-up and then runs the query.
func (r *rig) warm(ctx context.Context, d *dataset) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.stop()
	if _, err := r.load(ctx, d); err != nil {
		return err
	}
	if err := r.complete(ctx); err != nil {
		return err
	}
	for range 3 {
		if _, err := r.system.query(ctx, r.process.URL(), d); err != nil {
			return err
		}
	}
	return r.settle(ctx)
}

func (r *rig) measure(ctx context.Context, d *dataset, before int64) (*result, error) {
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	defer r.stop()
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	out := &result{system: r.name(), samples: d.samples(), stored: d.samples() + before}
	began, err := r.spent()
	if err != nil {
		return nil, err
	}
	if out.acknowledged, err = r.load(ctx, d); err != nil {
		return nil, err
	}
	loaded, err := r.spent()
	if err != nil {
		return nil, err
	}
	if err := r.complete(ctx); err != nil {
		return nil, err
	}
	finished, err := r.spent()
	if err != nil {
		return nil, err
	}
	out.load, out.all = loaded.minus(began), finished.minus(began)
	if out.disk, err = r.cluster.DiskBytes(r.keyspace()); err != nil {
		return nil, err
	}
	count, err := r.count(ctx, r.process.URL(), d)
	if err != nil {
		return nil, err
	}
	if count != d.samples() {
		return nil, fmt.Errorf("%d samples were acknowledged, and %d are there", d.samples(), count)
	}
	return out, r.time(ctx, d, out)
}

// complete brings all data into its final form and compacts it.
func (r *rig) complete(ctx context.Context) error {
	progress("%s: everything is written; finishing and compacting it", r.name())
	if err := r.finish(ctx, r.process.URL()); err != nil {
		return err
	}
	for _, command := range []string{"flush", "compact"} {
		if _, err := r.cluster.Nodetool(1, command, r.keyspace()); err != nil {
			return err
		}
	}
	return r.settle(ctx)
}

// time runs the query twice to warm up, and then measures it.
func (r *rig) time(ctx context.Context, d *dataset, out *result) error {
	progress("%s: asking the query", r.name())
	var times []time.Duration
	var before cost
	for i := range r.repeat + 2 {
		if i == 2 {
			var err error
			if before, err = r.spent(); err != nil {
				return err
			}
		}
		began := time.Now()
		answer, err := r.system.query(ctx, r.process.URL(), d)
		if err != nil {
			return err
		}
		if i >= 2 {
			times = append(times, time.Since(began))
		}
		out.sums = answer
	}
	after, err := r.spent()
	if err != nil {
		return err
	}
	used := after.minus(before)
	out.query = cost{used.system / time.Duration(r.repeat), used.cassandra / time.Duration(r.repeat)}
	slices.Sort(times)
	out.answer = times[len(times)/2]
	if out.sums.points() == 0 {
		return fmt.Errorf("the query has no result")
	}
	return nil
}

// load sends a dataset and waits until the system and Cassandra have processed it. It returns the time until all
// samples were acknowledged.
func (r *rig) load(ctx context.Context, d *dataset) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	var senders sync.WaitGroup
	for sender := range r.senders {
		senders.Go(func() {
			for _, p := range d.parts(sender, r.senders, r.requestOf) {
				if err := r.deliver(ctx, d, p); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	senders.Wait()
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	progress("%s: all acknowledged after %s", r.name(), took.Round(time.Second))
	return took, r.settle(ctx)
}

// deliver sends a request until it is accepted, but for at most a minute.
func (r *rig) deliver(ctx context.Context, d *dataset, p part) error {
	body, err := r.encode(d, p)
	if err != nil {
		return err
	}
	path, headers := r.endpoint()
	giveUp := time.Now().Add(time.Minute)
	for {
		_, status, err := post(ctx, http.DefaultClient, r.process.URL()+path, headers, bytes.NewReader(body))
		if err == nil || ctx.Err() != nil || status/100 == 4 && status != http.StatusTooManyRequests ||
			time.Now().After(giveUp) {
			return err
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(100 * time.Millisecond)
	}
}

// spent returns the CPU time that the system and Cassandra have used so far.
func (r *rig) spent() (cost, error) {
	usage, err := bench.ProcessUsage(r.process.PID())
	if err != nil {
		return cost{}, err
	}
	seconds, err := r.cluster.CPUSeconds()
	return cost{usage.CPU, time.Duration(seconds * float64(time.Second))}, err
}

// settle waits until the system and Cassandra use less than a tenth of a core in three consecutive seconds, but at most
// five minutes.
func (r *rig) settle(ctx context.Context) error {
	quiet := 0
	last, err := r.spent()
	for range 300 {
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		var now cost
		now, err = r.spent()
		if quiet++; now.minus(last).both() > 100*time.Millisecond {
			quiet = 0
		}
		if quiet == 3 {
			return err
		}
		last = now
	}
	progress("%s: still working after five minutes", r.name())
	return err
}
