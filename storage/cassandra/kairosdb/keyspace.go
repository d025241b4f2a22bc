package kairosdb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/cassandra"
)

// errNotKairosDB means that a keyspace has no data of KairosDB.
var errNotKairosDB = fmt.Errorf("kairosdb: not a KairosDB keyspace")

// metricNames is the row of string_index that lists metrics.
const metricNames = "metric_names"

// maxMetrics bounds the list of metrics in memory.
const maxMetrics = 10_000_000

// Keyspace reads a keyspace of KairosDB. Its methods may be called concurrently.
type Keyspace struct {
	session *gocql.Session
	layout  layout
	// legacy is set if table row_key_index exists, current if row_key_time_index and row_keys exist.
	legacy, current bool
	strings         bool
}

// columnsOf has the columns that are read, by table.
var columnsOf = map[string][]string{
	"data_points":        {"key", "column1", "value"},
	"string_index":       {"key", "column1"},
	"row_key_index":      {"key", "column1"},
	"row_key_time_index": {"metric", "table_name", "row_time"},
	"row_keys":           {"metric", "table_name", "row_time", "data_type", "tags"},
	"spec":               {"spec_type", "name", "value"},
}

// Open connects to the cluster and checks the tables of the keyspace Options.Keyspace. It returns errNotKairosDB if
// they are missing.
func Open(ctx context.Context, opts cassandra.Options) (*Keyspace, error) {
	session, err := cassandra.OpenForeign(ctx, opts)
	if err != nil {
		return nil, err
	}
	k := &Keyspace{session: session}
	if err := k.readTables(ctx, opts.Keyspace); err != nil {
		session.Close()
		return nil, err
	}
	return k, nil
}

// Close closes the connections. No call may be under way.
func (k *Keyspace) Close() { k.session.Close() }

// readTables determines which tables exist, and the layout of rows.
func (k *Keyspace) readTables(ctx context.Context, keyspace string) error {
	live, err := k.session.KeyspaceMetadata(keyspace)
	if err != nil {
		return fmt.Errorf("kairosdb: read the tables of keyspace %s: %w", keyspace, err)
	}
	has := map[string]bool{}
	for table, columns := range columnsOf {
		t := live.Tables[table]
		if t == nil {
			continue
		}
		for _, c := range columns {
			if t.Columns[c] == nil {
				return fmt.Errorf("%w: table %s.%s has no column %s", errNotKairosDB, keyspace, table, c)
			}
		}
		has[table] = true
	}
	k.legacy = has["row_key_index"]
	k.current, k.strings = has["row_key_time_index"] && has["row_keys"], has["string_index"]
	switch {
	case !has["data_points"]:
		return fmt.Errorf("%w: %s has no table data_points", errNotKairosDB, keyspace)
	case !k.legacy && !k.current:
		return fmt.Errorf("%w: %s has neither row_key_index nor row_key_time_index and row_keys",
			errNotKairosDB, keyspace)
	}
	spec := map[string]string{}
	if has["spec"] {
		rows := k.session.Query(
			"SELECT name, value FROM spec WHERE spec_type = 'cluster_config'",
		).WithContext(ctx).Iter()
		var name, value string
		for rows.Scan(&name, &value) {
			spec[name] = value
		}
		if err := rows.Close(); err != nil {
			return fmt.Errorf("kairosdb: read table spec: %w", err)
		}
	}
	if k.layout, err = parseLayout(spec); err != nil || k.layout.unit != unitSeconds || !k.current {
		return err
	}
	return k.measure(ctx)
}

// measure determines the width of rows in a keyspace with columns in seconds. The configured width is meant in seconds,
// but KairosDB 1.3 applies it as milliseconds. measure assumes milliseconds if a row's time isn't a multiple of the
// width in seconds.
func (k *Keyspace) measure(ctx context.Context) error {
	rows := k.session.Query("SELECT row_time FROM row_key_time_index").WithContext(ctx).PageSize(pageOfKeys).Iter()
	for at := int64(0); rows.Scan(&at); {
		if at%k.layout.widthMS != 0 {
			k.layout.widthMS /= 1000
			break
		}
	}
	if err := rows.Close(); err != nil {
		return fmt.Errorf("kairosdb: read row_key_time_index: %w", err)
	}
	return nil
}

// WidthMS returns the time range of a row in milliseconds.
func (k *Keyspace) WidthMS() int64 { return k.layout.widthMS }

// Describe returns a short description of the keyspace's layout.
func (k *Keyspace) Describe() string {
	form := "row_keys"
	switch {
	case k.legacy && k.current:
		form = "row_keys and row_key_index"
	case k.legacy:
		form = "row_key_index"
	}
	return fmt.Sprintf("rows of %d h, columns in unit %s, indices %s", k.layout.widthMS/3_600_000, k.layout.unit, form)
}

// Metrics returns the names of all metrics, sorted by bytes, without duplicates: the names in string_index, and the
// names of metrics that have rows but aren't in string_index.
func (k *Keyspace) Metrics(ctx context.Context) ([]string, error) {
	var all []string
	add := func(statement string, args ...any) error {
		rows := k.session.Query(statement, args...).WithContext(ctx).PageSize(pageOfKeys).Iter()
		var name []byte
		for rows.Scan((*blobCell)(&name)) {
			if len(name) == 0 || !utf8.Valid(name) {
				continue // not a name that a query can select
			}
			if all = append(all, string(name)); len(all) >= 2*maxMetrics {
				all = sortNames(all)
			}
			if len(all) >= 2*maxMetrics {
				return fmt.Errorf("kairosdb: more than %d metrics", maxMetrics)
			}
		}
		if err := rows.Close(); err != nil {
			return fmt.Errorf("kairosdb: list metrics: %w", err)
		}
		return nil
	}
	if k.strings {
		if err := add("SELECT column1 FROM string_index WHERE key = ?", []byte(metricNames)); err != nil {
			return nil, err
		}
	}
	if k.current {
		if err := add("SELECT DISTINCT metric FROM row_key_time_index"); err != nil {
			return nil, err
		}
	}
	if k.legacy {
		if err := add("SELECT DISTINCT key FROM row_key_index"); err != nil {
			return nil, err
		}
	}
	return sortNames(all), nil
}

func sortNames(names []string) []string {
	slices.SortFunc(names, strings.Compare)
	return slices.Compact(names)
}

// blobCell receives a column of any type from the driver as bytes, without copying: the bytes don't change while there
// are references to them.
type blobCell []byte

// UnmarshalCQL implements gocql.Unmarshaler.
func (c *blobCell) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	*c = data
	return nil
}
