package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/inspect"
	"github.com/cassia-db/cassia/storage/pebble"
)

// listenFor is how long doctor waits for heartbeats of other processes. It is longer than two heartbeat intervals.
const listenFor = 5 * time.Second

// addDoctor declares the read-only command that examines a store, a directory or a cluster for operators.
func addDoctor(app *kingpin.Application) subcommand {
	cmd := app.Command("doctor", "Examine a cluster or a data directory: report problems, why they matter and what to "+
		"do. Changes nothing. Exits with status 1 if any finding is an error.")
	x := &examination{Engine: config.RegisterEngine(cmd), now: time.Now}
	cmd.Flag(
		"verify-files", "Read all files of the data directory and verify their checksums.",
	).Default("true").BoolVar(&x.verifiesFiles)
	retention := config.RetentionFlags(cmd)
	asJSON := cmd.Flag("json", "Print the findings as JSON.").Bool()
	server := &queriedServer{login: httpConfigFlag(cmd)}
	cmd.Flag(
		"url",
		"URL of a running server to examine, such as http://localhost:9201. The flags for a data directory or a "+
			"cluster are then ignored.",
	).StringVar(&server.url)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		if server.url != "" {
			found, err := server.examine(ctx)
			if err != nil {
				return err
			}
			doctor.SortFindings(found)
			return printFindings(ctx, withoutUser(server.url), found, stdout, *asJSON)
		}
		if err := x.Validate(); err != nil {
			return err
		}
		var err error
		if x.retention, err = retention(); err != nil {
			return err
		}
		return printFindings(ctx, x.Location(), x.run(ctx), stdout, *asJSON)
	}}
}

// examination collects facts about a store and passes them to package doctor, which turns them into findings.
//
//	directory or cluster ──► engine ──► store
//
// If one of the three can't be examined, a finding reports the reason. The findings about the earlier ones are still
// printed.
type examination struct {
	*config.Engine
	retention config.Retention
	now       func() time.Time
	// verifiesFiles is set if the contents of all files are verified.
	verifiesFiles bool
	found         []doctor.Finding
}

func (e *examination) add(findings ...doctor.Finding) { e.found = append(e.found, findings...) }

// run returns the findings, the most severe first.
func (e *examination) run(ctx context.Context) []doctor.Finding {
	if e.Kind == config.EngineCassandra {
		e.SetRetention(e.retention)
		e.examineCluster(ctx)
	} else {
		e.examineDirectory(ctx)
	}
	doctor.SortFindings(e.found)
	return e.found
}

// printFindings writes the findings for a location. It returns an error if the level of any finding is Error. If ctx
// has ended, it writes nothing, because the findings would report the unexamined parts as missing.
func printFindings(ctx context.Context, where string, found []doctor.Finding, w io.Writer, asJSON bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var err error
	if asJSON {
		err = doctor.WriteJSON(w, where, found)
	} else {
		err = doctor.Write(w, found)
	}
	if err == nil && doctor.CountLevel(found, doctor.Error) > 0 {
		err = fmt.Errorf("%s: %s", where, doctor.Summary(found))
	}
	return err
}

func (e *examination) examineCluster(ctx context.Context) {
	o := e.Cassandra
	o.CreateSchema = false
	o.Logger = slog.New(slog.DiscardHandler) // Its warnings are reported as findings.
	f, err := cassandra.ReadFacts(ctx, o)
	if err != nil {
		e.add(doctor.Finding{Level: doctor.Error, What: oneLine(err), Why: "nothing can be examined"})
		return
	}
	look := doctor.ClusterOptions{Keyspace: o.Keyspace, Consistency: o.Consistency}
	var clocks []doctor.Clock
	for _, n := range f.Nodes {
		if n.ClockError > 0 {
			clocks = append(clocks, doctor.Clock{Who: "node " + n.Address, Ahead: n.ClockAhead, Error: n.ClockError})
		}
	}
	if c := e.sharedStore(ctx, f, o); c != nil {
		look.Partitions = c.Periods[len(c.Periods)-1].Partitions
		for _, p := range c.Processes {
			if p.Alive {
				clocks = append(clocks, doctor.Clock{Who: "process " + p.Name, Ahead: p.Ahead})
			}
		}
	}
	e.add(doctor.CheckCluster(f, look)...)
	e.add(doctor.CheckClocks(clocks)...)
}

// sharedStore examines the store in a keyspace, if there is one.
func (e *examination) sharedStore(ctx context.Context, f *cassandra.Facts, o cassandra.Options) *inspect.Condition {
	if f.Replication == nil {
		return nil
	}
	eng, err := cassandra.Open(ctx, o)
	if err != nil {
		e.add(unopenedFinding(err))
		return nil
	}
	defer eng.Close()
	return e.examineStore(ctx, eng, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(listenFor):
			return nil
		}
	})
}

func unopenedFinding(err error) doctor.Finding {
	return doctor.Finding{
		Level: doctor.Error, What: "the store can't be opened: " + oneLine(err),
		Why: "`cassia serve` can't open it either; processes, pending work and damage can't be examined",
	}
}

// noStoreYet returns the finding for a location without a store. It is an error for a directory and a note for a
// keyspace, which the first server creates.
func (e *examination) noStoreYet() doctor.Finding {
	f := doctor.Finding{
		Level: doctor.Note, What: "there is no store yet",
		Why: "nothing was ever stored there, or the flags point to the wrong location",
		Do:  "the first `cassia serve` creates it",
	}
	if e.Kind == config.EnginePebble {
		f.Level = doctor.Error
		f.Do = "set --storage.path to the data directory of `cassia serve`; if there is none yet, start `cassia serve`"
	}
	return f
}

// examineStore examines the store in an engine. It returns nil if the store can't be read.
func (e *examination) examineStore(ctx context.Context, eng engine.Engine,
	listen func(context.Context) error) *inspect.Condition {
	mctx, bar := withMeterBar(ctx, "verifying files")
	c, err := inspect.ExamineStore(mctx, eng, inspect.ExamineOptions{
		Retention: e.retention.Raw, Retention5m: e.retention.FiveMinutes, Retention1h: e.retention.OneHour,
		TenantRetention: e.retention.Tenants, Classes: e.retention.Classes, Listen: listen,
		Files: e.verifiesFiles, Now: e.now,
	})
	bar.clearBar()
	switch {
	case errors.Is(err, storage.ErrNoStore):
		e.add(e.noStoreYet())
		return nil
	case errors.Is(err, engine.ErrUnavailable):
		e.add(doctor.Finding{
			Level: doctor.Error, What: "the store can't be read: " + oneLine(err),
			Why: "writes and queries fail for the same reason; processes, pending work and damage can't be examined",
		})
		return nil
	case err != nil:
		e.add(unopenedFinding(err))
		return nil
	}
	if space, err := inspect.SpaceByKind(ctx, eng); err != nil {
		e.add(doctor.Finding{
			Level: doctor.Warning, What: "the disk usage can't be measured: " + oneLine(err),
			Why: "the sizes of files and tables are unknown",
		})
	} else if space != nil {
		e.add(doctor.SpaceFinding(space))
	}
	e.add(doctor.CheckStore(c, e.storeOptions())...)
	return c
}

func (e *examination) storeOptions() doctor.StoreOptions {
	return doctor.StoreOptions{
		Shared: e.Kind == config.EngineCassandra, Keyspace: e.Cassandra.Keyspace, Flags: e.Location(), Now: e.now(),
	}
}

func (e *examination) examineDirectory(ctx context.Context) {
	d, err := doctor.ReadDirectory(e.Path)
	if errors.Is(err, os.ErrNotExist) {
		e.add(doctor.Finding{Level: doctor.Error, What: e.Location() + ": directory not found",
			Why: "nothing can be examined", Do: "set --storage.path to the data directory of `cassia serve`"})
		return
	}
	if err != nil {
		e.add(doctor.Finding{Level: doctor.Error, What: oneLine(err), Why: "`cassia serve` can't read it either",
			Do: "run this command as the owner of the directory"})
		return
	}
	e.add(doctor.CheckDirectory(d), doctor.Finding{
		Level: doctor.OK,
		What: "not examined, because a data directory has only one process: nodes, replication, commit log, schema, " +
			"clocks, processes, leases",
	})
	o := pebbleOptions()
	o.Logger, o.ReadOnly = slog.New(slog.DiscardHandler), true
	eng, err := pebble.Open(e.Path, o)
	if errors.Is(err, pebble.ErrNoData) {
		if err := pebble.CheckForeign(e.Path); err != nil {
			e.add(doctor.Finding{
				Level: doctor.Error, What: oneLine(err),
				Why: "`cassia serve` creates no store there; the flag probably points to the wrong directory",
				Do:  "set --storage.path to the data directory of `cassia serve`",
			})
			return
		}
		e.add(e.noStoreYet())
		return
	}
	if errors.Is(err, engine.ErrLocked) {
		e.add(doctor.Finding{
			Level: doctor.Note, What: "the store is in use by a running process and can't be examined from outside",
			Why: "pending work and damage are unknown",
			Do: "examine it through that process: cassia doctor --url=http://localhost:9201\nor stop the process " +
				"and run this command again",
		})
		return
	}
	if err != nil {
		e.add(unopenedFinding(err))
		return
	}
	defer eng.Close()
	e.examineStore(ctx, eng, nil)
}
