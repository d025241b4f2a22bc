package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/kairosdb"
	"github.com/cassia-db/cassia/storage/cassandra"
	keyspace "github.com/cassia-db/cassia/storage/cassandra/kairosdb"
)

// kairosPasswordVariable is the environment variable with the password for KairosDB's Cassandra cluster.
const kairosPasswordVariable = "CASSIA_KAIROSDB_PASSWORD"

// kairosFlags holds the flags that locate a KairosDB keyspace and set how its series are mapped.
type kairosFlags struct {
	cassandra    cassandra.Options
	hosts        []string
	passwordFile string
	mappingFile  string
	readers      int
	batchBytes   units.Base2Bytes
}

// addImportKairosDB declares the import of a KairosDB keyspace.
func addImportKairosDB(imports *kingpin.CmdClause) subcommand {
	cmd := imports.Command("kairosdb", "Import a KairosDB keyspace on Cassandra. Integers and floating-point numbers "+
		"are imported; strings and other types are counted and skipped.")
	c := newImportCommand(cmd)
	f := &kairosFlags{cassandra: cassandra.DefaultOptions()}
	o := &f.cassandra
	cmd.Flag(
		"kairosdb.hosts", "Initial contact points of KairosDB's Cassandra cluster: comma-separated host or host:port.",
	).Default("127.0.0.1:9042").StringsVar(&f.hosts)
	cmd.Flag("kairosdb.keyspace", "Keyspace of KairosDB.").Default("kairosdb").StringVar(&o.Keyspace)
	cmd.Flag(
		"kairosdb.consistency", "Consistency level of reads: LOCAL_QUORUM, QUORUM, ALL, ONE, TWO, THREE or LOCAL_ONE.",
	).Default(o.Consistency).StringVar(&o.Consistency)
	cmd.Flag("kairosdb.local-dc", "Data center to read from. Default: any.").StringVar(&o.LocalDC)
	cmd.Flag("kairosdb.username", "User name for Cassandra.").StringVar(&o.Username)
	cmd.Flag(
		"kairosdb.password-file",
		"File with the password of that user. Alternatively, set the environment variable "+kairosPasswordVariable+".",
	).StringVar(&f.passwordFile)
	cmd.Flag("kairosdb.tls", "Connect to Cassandra with TLS.").BoolVar(&o.TLS.Enabled)
	cmd.Flag(
		"kairosdb.tls-ca", "File with the CA certificates of the nodes. Default: the system's CA certificates.",
	).StringVar(&o.TLS.CAFile)
	cmd.Flag(
		"kairosdb.timeout", "Request timeout, after which a request is retried.",
	).Default(o.Timeout.String()).DurationVar(&o.Timeout)
	cmd.Flag(
		"kairosdb.readers", "Number of series read concurrently. A lower number puts less load on the cluster.",
	).Default(fmt.Sprint(kairosdb.DefaultReaders)).IntVar(&f.readers)
	cmd.Flag(
		"kairosdb.batch-bytes",
		"Amount of data to read before storing it. A lower value needs less memory and more time.",
	).Default("64MiB").BytesVar(&f.batchBytes)
	cmd.Flag("mapping.file", "YAML file that maps metrics and tags to series.").StringVar(&f.mappingFile)
	return c.fromSource(f.name, func(ctx context.Context, sel importer.Selection) (importer.Source, error) {
		return f.open(ctx, sel, c.dryRun)
	})
}

// name returns a description of the source, including all flags that affect its samples.
func (f *kairosFlags) name() string {
	text, _ := os.ReadFile(f.mappingFile) // open returns the error
	return fmt.Sprintf("kairosdb %s %s %x", strings.Join(f.hosts, ","), f.cassandra.Keyspace, sha256.Sum256(text))
}

// open connects to the keyspace.
func (f *kairosFlags) open(ctx context.Context, sel importer.Selection, dry bool) (importer.Source, error) {
	mapping, err := f.readMapping()
	if err != nil {
		return nil, err
	}
	o := f.cassandra
	o.Hosts = nil
	for _, list := range f.hosts {
		for host := range strings.SplitSeq(list, ",") {
			if host = strings.TrimSpace(host); host != "" {
				o.Hosts = append(o.Hosts, host)
			}
		}
	}
	if o.Password, err = f.readPassword(); err != nil {
		return nil, err
	}
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	k, err := keyspace.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("--kairosdb.hosts=%s --kairosdb.keyspace=%s: %w",
			strings.Join(o.Hosts, ","), o.Keyspace, err)
	}
	source := kairosdb.New(kairosdb.Options{
		Keyspace: kairosKeyspace{k}, WidthMS: k.WidthMS(), Mapping: mapping, Select: sel, Readers: f.readers,
		BatchBytes: int(f.batchBytes),
	})
	return &kairosSource{Source: source, keyspace: k, isDryRun: dry}, nil
}

// readMapping reads the mapping file.
func (f *kairosFlags) readMapping() (*kairosdb.Mapping, error) {
	if f.mappingFile == "" {
		return kairosdb.DefaultMapping(), nil
	}
	file, err := os.Open(f.mappingFile)
	if err != nil {
		return nil, fmt.Errorf("--mapping.file=%s: %w", f.mappingFile, errors.Unwrap(err))
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, kairosdb.MaxMappingFile+1))
	if err != nil {
		return nil, fmt.Errorf("--mapping.file=%s: %w", f.mappingFile, err)
	}
	mapping, err := kairosdb.ParseMapping(text)
	if err != nil {
		return nil, fmt.Errorf("--mapping.file=%s: %w", f.mappingFile, err)
	}
	return mapping, nil
}

func (f *kairosFlags) readPassword() (string, error) {
	switch {
	case f.passwordFile != "" && f.cassandra.Username == "":
		return "", fmt.Errorf("--kairosdb.password-file=%s: --kairosdb.username is missing", f.passwordFile)
	case f.passwordFile != "":
		text, err := os.ReadFile(f.passwordFile)
		return strings.TrimRight(string(text), "\r\n"), err
	case f.cassandra.Username != "":
		return os.Getenv(kairosPasswordVariable), nil
	}
	return "", nil
}

// kairosSource is a source together with its connections. In a dry run, it prints how each metric is mapped.
type kairosSource struct {
	*kairosdb.Source
	keyspace *keyspace.Keyspace
	isDryRun bool
}

func (s *kairosSource) Plan(ctx context.Context) (importer.Plan, error) {
	plan, err := s.Source.Plan(ctx)
	if s.isDryRun {
		fmt.Fprintln(stdout, s.keyspace.Describe())
		printMapped(stdout, s.Mappings())
	}
	return plan, err
}

// Close closes the connections.
func (s *kairosSource) Close() error {
	s.keyspace.Close()
	return nil
}

// printMapped prints how each metric is mapped, one line per metric.
func printMapped(w io.Writer, all []kairosdb.Metric) {
	for _, m := range all {
		tags := make([]string, len(m.Tags))
		for i, tag := range m.Tags {
			switch {
			case tag.To == "":
				tags[i] = tag.From + " dropped"
			case tag.To == tag.From:
				tags[i] = tag.From
			default:
				tags[i] = tag.From + " → " + tag.To
			}
		}
		fmt.Fprintf(w, "%s → %s: %s; tags %s\n", m.From, m.To, countNoun(m.Series, "series"), strings.Join(tags, ", "))
	}
}

// kairosKeyspace adapts keyspace.Keyspace to the interface kairosdb.Keyspace.
type kairosKeyspace struct{ *keyspace.Keyspace }

var _ kairosdb.Keyspace = kairosKeyspace{}

func (k kairosKeyspace) Rows(ctx context.Context, metric string, minMS, maxMS int64) iter.Seq2[[]kairosdb.Row, error] {
	return func(yield func([]kairosdb.Row, error) bool) {
		for rows, err := range k.Keyspace.Rows(ctx, metric, minMS, maxMS) {
			out := make([]kairosdb.Row, len(rows))
			for i, r := range rows {
				out[i] = kairosdb.Row{Metric: r.Metric, TimeMS: r.TimeMS, Type: r.Type, IsNumber: r.IsNumber(),
					Tags: r.Tags, Key: r.Key}
			}
			if !yield(out, kairosError(err)) {
				return
			}
		}
	}
}

func (k kairosKeyspace) Points(ctx context.Context, r *kairosdb.Row, minMS,
	maxMS int64) iter.Seq2[kairosdb.Point, error] {
	row := keyspace.Row{Metric: r.Metric, TimeMS: r.TimeMS, Type: r.Type, Tags: r.Tags, Key: r.Key}
	return func(yield func(kairosdb.Point, error) bool) {
		for p, err := range k.Keyspace.Points(ctx, &row, minMS, maxMS) {
			if !yield(kairosdb.Point(p), kairosError(err)) {
				return
			}
		}
	}
}

// kairosError converts errors about damaged rows to a kairosdb.DamageError, after which the import continues. Any other
// error ends it.
func kairosError(err error) error {
	if errors.Is(err, keyspace.ErrCorrupt) {
		return &kairosdb.DamageError{Err: err}
	}
	return err
}
