// Package starts records which tenants have sent deltas. A delta is stored as a sample whose start timestamp is the
// start of its interval, so rates of these tenants are computed with start timestamps, and rates of other tenants
// without. The OTLP adapter calls Record before it stores samples, and queries call DeltasAfter. If a tenant's row were
// lost, its rates would be wrong.
//
//	OTLP delta ─► Record ─► store: deltas/tenant, before the samples
//	query      ◄─ DeltasAfter ◄─ memory ◄─ Refresh: every half minute if multiple processes share the store
package starts

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// Never is returned by DeltasAfter for a tenant that has sent no deltas.
const Never = int64(math.MaxInt64)

// recordTries is the max number of attempts to write a row that other processes write concurrently.
const recordTries = 5

var partition = engine.Key{engine.Text("deltas")}

// Options are the parts of the store that DeltaTenants uses.
type Options struct {
	Engine engine.Engine
	Period *format.Periods
	Now    func() time.Time
	// Corrupt counts and logs a row that can't be read.
	Corrupt func(*engine.Table, error)
	Logger  *slog.Logger
}

// row is the stored value, in JSON. Samples after FromMS are evaluated with start timestamps. SinceMS is the time of
// the first delta.
type row struct {
	FromMS  int64 `json:"from_ms"`
	SinceMS int64 `json:"since_ms"`
}

// DeltaTenant is a tenant that has sent deltas.
type DeltaTenant struct {
	Name string
	// From is the time in milliseconds after which samples are evaluated with their start timestamps; -format.MaxTime:
	// all samples.
	From int64
	// Since is the time at which the first delta was received. It is zero if the row can't be read.
	Since time.Time
}

// DeltaTenants are the tenants that have sent deltas. Rows are never deleted, and DeltasAfter never increases.
type DeltaTenants struct {
	o Options

	mu  sync.RWMutex
	all map[string]DeltaTenant
}

// New returns DeltaTenants. Call Open to read the rows.
func New(o Options) *DeltaTenants { return &DeltaTenants{o: o, all: map[string]DeltaTenant{}} }

// DeltasAfter returns the time in milliseconds after which a tenant's samples are evaluated with their start
// timestamps, or Never.
func (d *DeltaTenants) DeltasAfter(tenant string) int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if t, ok := d.all[tenant]; ok {
		return t.From
	}
	return Never
}

// Tenants lists the tenants that have sent deltas, by name.
func (d *DeltaTenants) Tenants() []DeltaTenant {
	d.mu.RLock()
	defer d.mu.RUnlock()
	list := make([]DeltaTenant, 0, len(d.all))
	for _, t := range d.all {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b DeltaTenant) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Open reads the rows when the store is opened.
func (d *DeltaTenants) Open(ctx context.Context) error { return d.readRows(ctx, func(DeltaTenant) {}) }

// Refresh reads rows that other processes may have written.
func (d *DeltaTenants) Refresh(ctx context.Context) error { return d.readRows(ctx, d.logTenant) }

// readRows reads the rows, and calls changed for each row that is new or changed since the last read.
func (d *DeltaTenants) readRows(ctx context.Context, changed func(DeltaTenant)) error {
	for stored, err := range d.o.Engine.Scan(ctx, engine.Range{Table: engine.Store, Partition: partition}) {
		if err != nil {
			return fmt.Errorf("storage: reading which tenants have sent deltas: %w", err)
		}
		if t := d.parseRow(strings.Clone(stored.Clustering[0].Text), stored.Value); d.mergeRow(t) {
			changed(t)
		}
	}
	return nil
}

// parseRow parses a row. If the row can't be read, all samples of the tenant are assumed to be deltas.
func (d *DeltaTenants) parseRow(tenant string, value []byte) DeltaTenant {
	var r row
	if err := json.Unmarshal(value, &r); err != nil {
		if d.DeltasAfter(tenant) != -format.MaxTime { // Report it once.
			d.o.Corrupt(engine.Store, fmt.Errorf("%w: the deltas of tenant %q: %w", engine.ErrCorrupt, tenant, err))
		}
		return DeltaTenant{Name: tenant, From: -format.MaxTime}
	}
	return DeltaTenant{Name: tenant, From: r.FromMS, Since: time.UnixMilli(r.SinceMS)}
}

// mergeRow merges t into the known tenants, and reports whether this changed the known tenants.
func (d *DeltaTenants) mergeRow(t DeltaTenant) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if have, ok := d.all[t.Name]; ok && have.From <= t.From {
		return false
	}
	d.all[t.Name] = t
	return true
}

func (d *DeltaTenants) logTenant(t DeltaTenant) {
	d.o.Logger.Info(
		"the tenant sends deltas: its rate(), irate(), increase() and resets() are computed with start timestamps "+
			"from a time on",
		"tenant", t.Name, "from", time.UnixMilli(t.From).UTC(),
	)
}

// Record records that a tenant has sent deltas with times from oldest on, in milliseconds, and returns when the record
// is durable. Start timestamps are then used from the start of the window of raw rows that contains oldest.
func (d *DeltaTenants) Record(ctx context.Context, tenant string, oldest int64) error {
	from := d.o.Period.WindowStart(d.o.Period.RawWindowAt(oldest))
	if d.DeltasAfter(tenant) <= from {
		return nil
	}
	item, since := engine.Key{engine.Text(tenant)}, d.o.Now().UnixMilli()
	var before []byte
	for range recordTries {
		value, err := json.Marshal(row{FromMS: from, SinceMS: since})
		if err != nil {
			return err
		}
		ok, found, err := d.o.Engine.CompareAndSet(ctx, engine.Store, partition, item, before, value)
		if err != nil {
			return fmt.Errorf("storage: recording that tenant %q has sent deltas: %w", tenant, err)
		}
		if ok {
			if t := (DeltaTenant{tenant, from, time.UnixMilli(since)}); d.mergeRow(t) {
				d.logTenant(t)
			}
			return nil
		}
		t := d.parseRow(tenant, found)
		if d.mergeRow(t); t.From <= from {
			return nil
		}
		before = slices.Clone(found)
		if !t.Since.IsZero() {
			since = t.Since.UnixMilli()
		}
	}
	return fmt.Errorf("storage: recording that tenant %q has sent deltas: %w: other processes keep changing the row",
		tenant, engine.ErrUnavailable)
}
