package storage

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts under testdata/scripts give into them")

// TestScripts runs the scripts in testdata/scripts. A script is a sequence of
//
//	command arguments        # … a comment
//	lines of input
//	----
//	output
//
// separated by blank lines. After a change of the output, run it with -rewrite and review the differences.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			s := &script{t: t}
			got := s.run(string(text))
			s.close()
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(text), got, "run with -rewrite if that is right")
		})
	}
}

// script is a store on which a script runs.
type script struct {
	t     *testing.T
	eng   engine.Engine
	opts  Options
	now   time.Time
	store *Store
}

// run executes the commands of a script, and returns the script with their current output.
func (s *script) run(text string) string {
	var out strings.Builder
	var command []string
	skip := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case skip:
			if skip = line != ""; !skip {
				out.WriteString("\n")
			}
		case line == "----":
			out.WriteString("----\n" + s.do(command[0], command[1:]))
			command, skip = nil, true
		default:
			out.WriteString(line + "\n")
			if line != "" && !strings.HasPrefix(line, "#") {
				command = append(command, line)
			}
		}
	}
	return out.String()
}

const scriptTime = "2006-01-02 15:04:05.000"

// parseTime parses a prefix of scriptTime. An underscore stands for the space in it.
func (s *script) parseTime(text string) int64 {
	at, err := time.Parse(scriptTime[:len(text)], strings.ReplaceAll(text, "_", " "))
	require.NoError(s.t, err)
	return at.UnixMilli()
}

func showScriptTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(scriptTime) }

// do executes a command, and returns its output.
func (s *script) do(command string, input []string) string {
	words := strings.Fields(command)
	ctx := context.Background()
	var out bytes.Buffer
	switch words[0] {
	case "open":
		s.open(words[1:])
	case "restart":
		s.close()
		s.start()
	case "now":
		s.now = time.UnixMilli(s.parseTime(words[1]))
	case "write":
		fmt.Fprintln(&out, s.write(words[1], input))
	case "select":
		s.selectAll(&out, words[1:])
	case "stage":
		s.stage(ctx, &out)
	case "seal":
		require.NoError(s.t, s.store.SealAll(ctx))
	case "round":
		run := &protocolRun{store: s.store, eng: newStepEngine(s.eng, nil)}
		run.round(ctx)
		require.Empty(s.t, run.problem)
	case "chunks":
		s.chunks(ctx, &out, words[1])
	case "damage":
		s.damage(ctx, &out, words[1])
	case "counters":
		for _, t := range []*engine.Table{engine.Stage, engine.Raw} {
			fmt.Fprintf(
				&out, "corrupt rows of %s: %v\n", t,
				testutil.ToFloat64(s.store.metrics.corrupt.WithLabelValues(t.Name)),
			)
		}
		fmt.Fprintf(&out, "dropped windows: %v\n", testutil.ToFloat64(s.store.metrics.droppedWindows))
		fmt.Fprintf(&out, "samples without their series: %v\n", testutil.ToFloat64(s.store.metrics.orphans))
	default:
		s.t.Fatalf("no command %q", command)
	}
	return out.String()
}

func (s *script) open(words []string) {
	s.eng, s.opts = memory.New(), DefaultOptions()
	rowsOnly(&s.opts) // A script damages one of the rows.
	s.opts.Partitions = 1
	s.opts.Now = func() time.Time { return s.now }
	for _, word := range words {
		name, text, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "now":
			s.now = time.UnixMilli(s.parseTime(text))
		case "slot":
			s.opts.Slot, err = time.ParseDuration(text)
		case "retention":
			s.opts.Retention, err = time.ParseDuration(text)
		default:
			s.t.Fatalf("no setting %q", name)
		}
		require.NoError(s.t, err)
	}
	s.start()
}

func (s *script) start() {
	s.store = openReady(s.t, s.eng, s.opts)
}

func (s *script) close() { require.NoError(s.t, s.store.Close()) }

// write writes samples in one request. Each line of input is SERIES TIME VALUE.
func (s *script) write(tenant string, input []string) string {
	b := s.store.NewBatch(tenant)
	for _, line := range input {
		words := strings.Fields(line)
		ref, err := b.Define(nil, protocolLabels(words[0]))
		require.NoError(s.t, err)
		v, err := parseProtocolFloat(words[2])
		require.NoError(s.t, err)
		if err := b.Float(ref, s.parseTime(words[1]), 0, v); err != nil {
			b.Release()
			return fmt.Sprintf("%s: %v", line, err)
		}
	}
	n := b.Len()
	if err := b.Commit(s.t.Context()); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d samples acknowledged", n)
}

// selectAll prints a tenant's samples, optionally only those between two times.
func (s *script) selectAll(out *bytes.Buffer, words []string) {
	q := query.Query{
		Tenant: words[0], MinT: -format.MaxTime, MaxT: format.MaxTime, Sorted: true, Warn: func(err error) {
			fmt.Fprintf(out, "warning: %s\n", randomWords.ReplaceAllString(readable(err.Error()), "$1 …"))
		},
	}
	if len(words) > 1 {
		q.MinT, q.MaxT = s.parseTime(words[1]), s.parseTime(words[2])
	}
	found, err := s.store.Select(s.t.Context(), q)
	require.NoError(s.t, err)
	for _, series := range found {
		var samples chunk.Samples
		require.NoError(s.t, series.Samples(&samples))
		list, problem := flatten(&samples)
		require.Empty(s.t, problem)
		fmt.Fprintf(out, "%s/%s\n", series.Labels.Get(labels.MetricName), series.Labels.Get("host"))
		for _, x := range list {
			fmt.Fprintf(out, "  %s  %v\n", showScriptTime(x.t), x.v)
		}
	}
}

// randomWords matches texts that differ between runs: names of writers, and checksums of their rows.
var randomWords = regexp.MustCompile(`\b(writer|checksum|computed) [0-9a-f]{8,}`)

func readable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, text)
}

// stage prints the slots that wait to be sealed.
func (s *script) stage(ctx context.Context, out *bytes.Buffer) {
	work, err := s.store.WaitingWork(ctx, 0)
	require.NoError(s.t, err)
	for _, w := range work {
		blobs := 0
		for _, err := range s.eng.Scan(
			ctx, engine.Range{Table: engine.Stage, Partition: format.StagePartition(w.Slot, 0)},
		) {
			require.NoError(s.t, err)
			blobs++
		}
		if blobs > 0 {
			p := s.store.period
			fmt.Fprintf(
				out, "(%s, %s]  blobs: %d\n", showScriptTime(p.SlotStart(w.Slot)), showScriptTime(p.SlotEnd(w.Slot)),
				blobs,
			)
		}
	}
}

// chunks prints the sealed chunks of a tenant.
func (s *script) chunks(ctx context.Context, out *bytes.Buffer, tenant string) {
	s.eachChunk(ctx, tenant, func(metric string, row engine.Row) {
		var samples chunk.Samples
		if err := chunk.Decode(row.Value, &samples); err != nil {
			fmt.Fprintf(out, "%s: %v\n", metric, err)
			return
		}
		minT, maxT := format.TimeBounds(&samples)
		fmt.Fprintf(
			out, "%s: %d samples, %s to %s\n", metric, samples.Len(), showScriptTime(minT), showScriptTime(maxT),
		)
	})
}

func (s *script) eachChunk(ctx context.Context, tenant string, do func(metric string, row engine.Row)) {
	for window := s.store.period.RawWindowAt(
		s.now.UnixMilli(),
	) - 400; window <= s.store.period.RawWindowAt(s.now.UnixMilli())+1; window++ {
		for _, metric := range []string{"heat", "load", "up"} {
			for row, err := range s.store.rows.Scan(ctx, engine.Range{
				Table: engine.Raw, Partition: format.SeriesPartition(window, tenant, metric, 0),
				From: engine.Key{engine.Int(format.KindChunk)}, To: engine.Key{engine.Int(format.KindChunk)},
			}) {
				require.NoError(s.t, err)
				do(metric, row)
			}
		}
	}
}

// damage changes a byte in the oldest blob of the staging log, or in the first chunk of tenant ann.
func (s *script) damage(ctx context.Context, out *bytes.Buffer, what string) {
	var table *engine.Table
	var partition engine.Key
	var row engine.Row
	keep := func(t *engine.Table, p engine.Key, r engine.Row) {
		if table == nil {
			table, partition, row = t, p, engine.Row{Clustering: r.Clustering.Clone(), Value: slices.Clone(r.Value)}
		}
	}
	if what == "blob" {
		work, err := s.store.WaitingWork(ctx, 0)
		require.NoError(s.t, err)
		for _, w := range work {
			for r, err := range s.eng.Scan(
				ctx, engine.Range{Table: engine.Stage, Partition: format.StagePartition(w.Slot, 0)},
			) {
				require.NoError(s.t, err)
				keep(engine.Stage, format.StagePartition(w.Slot, 0), r)
			}
		}
	} else {
		s.eachChunk(ctx, "ann", func(metric string, r engine.Row) {
			var samples chunk.Samples
			if chunk.Decode(r.Value, &samples) == nil {
				keep(engine.Raw, format.SeriesPartition(s.store.period.RawWindowAt(samples.T[0]), "ann", metric, 0), r)
			}
		})
	}
	require.NotNil(s.t, table, "there is nothing to damage")
	row.Value[len(row.Value)/2] ^= 0x10
	require.NoError(s.t, s.eng.Write(ctx, []engine.Batch{
		{Table: table, Partition: partition, Mutations: []engine.Mutation{
			{Clustering: row.Clustering, Timestamp: 1 << 60, Value: row.Value},
		}},
	}))
	fmt.Fprintf(out, "one byte of a row of %s is another now\n", table)
}
