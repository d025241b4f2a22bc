package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/rollup"
)

// horizonsFresh is how old a process' copy of a tenant's horizons may be where others change them. A window that was shown
// a moment ago isn't dropped for a week.
const horizonsFresh = 30 * time.Second

var horizonsPartition = engine.Key{engine.Text("horizons")}

// horizonMemory caches the tenants' horizons. It is bounded: when full it forgets all.
type horizonMemory struct {
	mu sync.Mutex
	of map[string]*tenantHorizons
}

const maxHorizonMemory = 1 << 16

// tenantHorizons are the horizons of a tenant, as they were read. They don't change.
type tenantHorizons struct {
	horizonRow
	value []byte // as stored; nil: there is no row
	// broken is true if the row can't be read: flags decide up to where rows are hidden, and nothing is dropped.
	broken bool
	read   time.Time
	// fixed are the expiries of the windows that may matter, see firstListed, in order, as they were read at listed; zero: they weren't, or nothing expires by
	// itself. firstExpiry is the first of them; 0: none expires.
	fixed       []fixedExpiry
	firstExpiry int64
	listed      time.Time
}

func (m *horizonMemory) get(tenant string) *tenantHorizons {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[tenant]
}

func (m *horizonMemory) set(tenant string, h *tenantHorizons) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil || len(m.of) >= maxHorizonMemory {
		m.of = map[string]*tenantHorizons{}
	}
	m.of[tenant] = h
}

// lacking returns up to where rows of a class may be missing, of a resolution; never: of none.
func (t *tenantHorizons) lacking(class int64, res rollup.Resolution) int64 {
	if t == nil {
		return never
	}
	if h := t.of(class, res); h != nil {
		return h.LackingMS
	}
	return never
}

// horizonsOf returns the horizons of a tenant; those that were read a while ago are read again where others may have
// changed them.
func (s *Store) horizonsOf(ctx context.Context, tenant string) (*tenantHorizons, error) {
	known := s.horizonMemory.get(tenant)
	if known != nil && (!s.expiring || !known.listed.IsZero()) && (!s.opts.Shared || membership.Elapsed(known.read, s.opts.Now()) < horizonsFresh) {
		return known, nil
	}
	return s.readHorizons(ctx, tenant, known)
}

// recallHorizons reads those of all tenants that have a row, when the store is opened: so that it is soon known which
// samples are refused.
func (s *Store) recallHorizons(ctx context.Context) error {
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Store, Partition: horizonsPartition}) {
		if err != nil {
			return fmt.Errorf("storage: reading the retention boundaries: %w", err)
		}
		tenant := strings.Clone(row.Clustering[0].Text)
		r, err := parseHorizons(row.Value)
		if err != nil {
			continue // Whoever asks for it reports it.
		}
		s.horizonMemory.set(tenant, &tenantHorizons{horizonRow: r, value: slices.Clone(row.Value), read: s.opts.Now()})
	}
	return nil
}

// readHorizons reads them; known are those that were read before, nil if none were.
func (s *Store) readHorizons(ctx context.Context, tenant string, known *tenantHorizons) (*tenantHorizons, error) {
	item := engine.Key{engine.Text(tenant)}
	t := &tenantHorizons{read: s.opts.Now()}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Store, Partition: horizonsPartition, From: item, To: item}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the retention boundaries of tenant %q: %w", tenant, err)
		}
		t.value = slices.Clone(row.Value)
	}
	if t.value != nil {
		var err error
		if t.horizonRow, err = parseHorizons(t.value); err != nil {
			s.damage.Corrupt(engine.Store, fmt.Errorf("%w: tenant %q", err, tenant))
			t.horizonRow, t.broken = horizonRow{}, true
		}
	}
	if err := s.takeExpiries(ctx, tenant, t, known); err != nil {
		return nil, err
	}
	s.horizonMemory.set(tenant, t)
	return t, nil
}

// startOf returns when a window of any resolution begins, milliseconds.
func (s *Store) startOf(window int64) int64 { return s.period.WindowEnd(window - 1) }

// errHorizonsChanged means that another process has changed a tenant's horizons.
var errHorizonsChanged = errors.New("storage: another process changed the retention boundaries concurrently")

// changeHorizons stores the horizons of a tenant in place of those that were read, and returns them.
func (s *Store) changeHorizons(ctx context.Context, tenant string, before *tenantHorizons, next horizonRow) (*tenantHorizons, error) {
	if err := s.clock.MayRemove(); err != nil {
		return nil, err
	}
	value, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	ok, _, err := s.eng.CompareAndSet(ctx, engine.Store, horizonsPartition, engine.Key{engine.Text(tenant)}, before.value, value)
	switch {
	case err != nil: // It may have been written: it is read again.
		s.horizonMemory.forget(tenant)
		return nil, fmt.Errorf("storage: changing the retention boundaries of tenant %q: %w", tenant, err)
	case !ok:
		s.horizonMemory.forget(tenant)
		return nil, errHorizonsChanged
	}
	t := &tenantHorizons{horizonRow: next, value: value, read: s.opts.Now()}
	if err := s.readExpiries(ctx, tenant, t); err != nil {
		s.horizonMemory.forget(tenant)
		return nil, err
	}
	s.horizonMemory.set(tenant, t)
	return t, nil // Not from the memory: who fails to change them meanwhile clears that.
}

func (m *horizonMemory) forget(tenant string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, tenant)
}
