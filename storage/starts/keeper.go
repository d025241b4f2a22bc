// Package starts records which tenants have sent deltas. A delta is stored as a sample whose start timestamp is the start of its interval, so rates of
// these tenants are computed with start timestamps, and those of other tenants without.
//
//	OTLP delta ─► Record ─► store: deltas/tenant, before the samples
//	query      ◄─ From   ◄─ memory ◄─ Refresh: every half minute where several processes share the store
package starts

import (
	"context"
	"encoding/json"
	"errors"
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

// Never is From of a tenant that has sent no deltas.
const Never = int64(math.MaxInt64)

// recordTries is how often a row is written where other processes write it concurrently.
const recordTries = 5

var partition = engine.Key{engine.Text("deltas")}

// errChanging means that other processes keep changing a row.
var errChanging = errors.New("other processes keep changing the row")

// Options are what a Keeper needs of its store.
type Options struct {
	Engine engine.Engine
	Period *format.Periods
	Now    func() time.Time
	// Corrupt counts and logs a row that can't be read.
	Corrupt func(*engine.Table, error)
	Logger  *slog.Logger
}

// row is the stored value, JSON: samples after FromMS are evaluated with start timestamps; SinceMS is when the first delta came.
type row struct {
	FromMS  int64 `json:"from_ms"`
	SinceMS int64 `json:"since_ms"`
}

// Tenant is a tenant that has sent deltas.
type Tenant struct {
	Name string
	// From is the time after which samples are evaluated with their start timestamps, milliseconds; -format.MaxTime: all are.
	From int64
	// Since is when the first delta was received; zero: the row can't be read.
	Since time.Time
}

// Keeper has the tenants that have sent deltas. Rows are never deleted, and From only ever falls.
type Keeper struct {
	o Options

	mu  sync.RWMutex
	all map[string]Tenant
}

// New returns a keeper that has read nothing yet.
func New(o Options) *Keeper { return &Keeper{o: o, all: map[string]Tenant{}} }

// From returns the time after which a tenant's samples are evaluated with their start timestamps, milliseconds; Never: none are.
func (k *Keeper) From(tenant string) int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if t, ok := k.all[tenant]; ok {
		return t.From
	}
	return Never
}

// Tenants lists the tenants that have sent deltas, by name.
func (k *Keeper) Tenants() []Tenant {
	k.mu.RLock()
	defer k.mu.RUnlock()
	list := make([]Tenant, 0, len(k.all))
	for _, t := range k.all {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Tenant) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Open reads the rows when the store is opened.
func (k *Keeper) Open(ctx context.Context) error { return k.read(ctx, func(Tenant) {}) }

// Refresh reads the rows that other processes may have written.
func (k *Keeper) Refresh(ctx context.Context) error { return k.read(ctx, k.log) }

// read reads the rows, and calls changed for each tenant of which this process didn't know as much.
func (k *Keeper) read(ctx context.Context, changed func(Tenant)) error {
	for stored, err := range k.o.Engine.Scan(ctx, engine.Range{Table: engine.Store, Partition: partition}) {
		if err != nil {
			return fmt.Errorf("storage: reading which tenants have sent deltas: %w", err)
		}
		if t := k.parse(strings.Clone(stored.Clustering[0].Text), stored.Value); k.learn(t) {
			changed(t)
		}
	}
	return nil
}

// parse returns what a row says. A row that can't be read says that the tenant has sent deltas, at any time.
func (k *Keeper) parse(tenant string, value []byte) Tenant {
	var r row
	if err := json.Unmarshal(value, &r); err != nil {
		if k.From(tenant) != -format.MaxTime { // It is reported once.
			k.o.Corrupt(engine.Store, fmt.Errorf("%w: the deltas of tenant %q: %w", engine.ErrCorrupt, tenant, err))
		}
		return Tenant{Name: tenant, From: -format.MaxTime}
	}
	return Tenant{Name: tenant, From: r.FromMS, Since: time.UnixMilli(r.SinceMS)}
}

// learn takes over what a row says, and reports whether it is new.
func (k *Keeper) learn(t Tenant) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if have, ok := k.all[t.Name]; ok && have.From <= t.From {
		return false
	}
	k.all[t.Name] = t
	return true
}

func (k *Keeper) log(t Tenant) {
	k.o.Logger.Info("the tenant sends deltas: its rate(), irate(), increase() and resets() are computed with start timestamps from a time on",
		"tenant", t.Name, "from", time.UnixMilli(t.From).UTC())
}

// Record returns once it is durable that a tenant has sent deltas, of times from oldest on, milliseconds. Start timestamps then count from the start of
// the window of raw rows of that time on.
func (k *Keeper) Record(ctx context.Context, tenant string, oldest int64) error {
	from := k.o.Period.WindowStart(k.o.Period.RawWindowAt(oldest))
	if k.From(tenant) <= from {
		return nil
	}
	item, since := engine.Key{engine.Text(tenant)}, k.o.Now().UnixMilli()
	var before []byte
	for range recordTries {
		value, err := json.Marshal(row{FromMS: from, SinceMS: since})
		if err != nil {
			return err
		}
		ok, found, err := k.o.Engine.CompareAndSet(ctx, engine.Store, partition, item, before, value)
		if err != nil {
			return fmt.Errorf("storage: recording that tenant %q has sent deltas: %w", tenant, err)
		}
		if ok {
			if t := (Tenant{tenant, from, time.UnixMilli(since)}); k.learn(t) {
				k.log(t)
			}
			return nil
		}
		t := k.parse(tenant, found)
		if k.learn(t); t.From <= from {
			return nil
		}
		before = slices.Clone(found)
		if !t.Since.IsZero() {
			since = t.Since.UnixMilli()
		}
	}
	return fmt.Errorf("storage: recording that tenant %q has sent deltas: %w; %w", tenant, errChanging, engine.ErrUnavailable)
}
