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
	"github.com/cassia-db/cassia/storage/format"
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
	// broken is true if the row can't be read: flags and missing decide up to where rows are hidden, and nothing is dropped.
	broken bool
	// missing are the ends of the newest windows that have no rows, though coarser ones have: see Store.missing.
	missing [2]int64
	// looked is true once these were looked for.
	looked bool
	read   time.Time
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

// lacking returns up to where rows of a class may be missing, of a resolution; nil: of none.
func (t *tenantHorizons) lacking(class int64, res rollup.Resolution) int64 {
	if t == nil {
		return never
	}
	to := int64(never)
	if int(res) < len(t.missing) {
		to = t.missing[res]
	}
	if h := t.of(class, res); h != nil {
		to = max(to, h.LackingMS)
	}
	return to
}

// horizonsOf returns the horizons of a tenant; those that were read a while ago are read again where others may have
// changed them.
func (s *Store) horizonsOf(ctx context.Context, tenant string) (*tenantHorizons, error) {
	known := s.horizonMemory.get(tenant)
	if known != nil && known.looked && (!s.opts.Shared || membership.Elapsed(known.read, s.opts.Now()) < horizonsFresh) {
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
		s.horizonMemory.set(tenant, &tenantHorizons{horizonRow: r, value: slices.Clone(row.Value), missing: [2]int64{never, never}, read: s.opts.Now()})
	}
	return nil
}

// readHorizons reads them; known are those that were read before, nil if none were.
func (s *Store) readHorizons(ctx context.Context, tenant string, known *tenantHorizons) (*tenantHorizons, error) {
	item := engine.Key{engine.Text(tenant)}
	t := &tenantHorizons{missing: [2]int64{never, never}, read: s.opts.Now()}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Store, Partition: horizonsPartition, From: item, To: item}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the retention boundaries of %q: %w", tenant, err)
		}
		t.value = slices.Clone(row.Value)
	}
	if t.value != nil {
		var err error
		if t.horizonRow, err = parseHorizons(t.value); err != nil {
			s.corrupt(engine.Store, fmt.Errorf("%w: tenant %q", err, tenant))
			t.horizonRow, t.broken = horizonRow{}, true
		}
	}
	if known != nil && known.looked {
		t.missing, t.looked = known.missing, true
	} else if err := s.findMissing(ctx, tenant, t); err != nil {
		return nil, err
	}
	s.horizonMemory.set(tenant, t)
	return t, nil
}

// findMissing looks, once in a process, for windows that an earlier release has dropped, or never made rows in, without
// a row of horizons for it: those that are not listed, though rollups of them are marked. A seal lists the windows of all
// resolutions before it marks any.
func (s *Store) findMissing(ctx context.Context, tenant string, t *tenantHorizons) error {
	t.looked = true
	for res := rollup.Raw; res <= rollup.FiveMinutes; res++ {
		unread := false
		finer, err := s.windowsAround(ctx, tenant, format.FirstWindow(res), format.LastWindow(res), func(e *DamagedRowsError) {
			unread = true
			s.noteGap(e)
		})
		if err != nil {
			return err
		}
		if unread { // What isn't listed may stand there.
			continue
		}
		coarser, err := s.windowsOf(ctx, tenant, format.FirstWindow(res+1), format.LastWindow(res+1))
		if err != nil {
			return err
		}
		listed := make(map[int64]bool, len(finer))
		for _, w := range finer {
			listed[w] = true
		}
		from := t.lacking(classDefault, res)
		for _, w := range slices.Backward(coarser) {
			if s.period.WindowEnd(w) <= from {
				break
			}
			if to, ok, err := s.missingIn(ctx, tenant, t, w, res, listed); err != nil || ok {
				if err != nil {
					return err
				}
				t.missing[res] = to
				break
			}
		}
	}
	return nil
}

// missingIn returns the end of the newest window of a resolution that isn't listed, of which a coarser window has marks.
func (s *Store) missingIn(ctx context.Context, tenant string, t *tenantHorizons, coarser int64, res rollup.Resolution, listed map[int64]bool) (to int64, ok bool, err error) {
	end := s.period.WindowEnd(coarser)
	whole := true
	for at := end; at > s.startOf(coarser); { // From the newest window on.
		w := s.period.WindowAt(res, at)
		whole = whole && listed[w]
		at = s.startOf(w)
	}
	if whole {
		return 0, false, nil
	}
	marks, err := s.marksIn(ctx, tenant, coarser)
	if err != nil {
		return 0, false, err
	}
	for m := range marks {
		w := s.period.WindowOfSlot(res, m.slot)
		if listed[w] || ok && s.period.WindowEnd(w) <= to || s.hasVanished(t, classDefault, w) {
			continue
		}
		if listed[w], err = s.standsNow(ctx, tenant, w); err != nil {
			return 0, false, err
		}
		if !listed[w] {
			to, ok = s.period.WindowEnd(w), true
		}
	}
	return to, ok, nil
}

// standsNow reports whether a window isn't missing though it wasn't listed a moment ago: it was sealed since, or, over Cassandra,
// an earlier release has unlisted it while its rows stood on. Expire lists it again then.
func (s *Store) standsNow(ctx context.Context, tenant string, window int64) (bool, error) {
	l, err := s.listingOf(ctx, tenantWindow{tenant, window})
	if err != nil || l.Counts() {
		return true, err
	}
	return s.hasRows(ctx, tenant, window)
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
		return nil, fmt.Errorf("storage: changing the retention boundaries of %q: %w", tenant, err)
	case !ok:
		s.horizonMemory.forget(tenant)
		return nil, errHorizonsChanged
	}
	t := &tenantHorizons{horizonRow: next, value: value, missing: before.missing, looked: before.looked, read: s.opts.Now()}
	s.horizonMemory.set(tenant, t)
	return t, nil // Not from the memory: who fails to change them meanwhile clears that.
}

func (m *horizonMemory) forget(tenant string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, tenant)
}
