package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// expireGrace is how long after its retention a window may still stand.
const expireGrace = 7 * 24 * time.Hour

// What a row of table bounds is about. The tenant "" stands for all of them.
const (
	// boundFirst is the oldest slot that was ever sealed.
	boundFirst = "first"
	// boundDropped is the newest window that retention has dropped, of the tenant "".
	boundDropped = "dropped"
	// boundTenant begins the rows of the tenant "" that name the tenants.
	boundTenant = "tenant:"
)

// stretchBounds makes sure that the first slot of the tenant, and of all, is at most slot. The row's
// timestamp falls as the slot rises, so that the lowest wins. A tenant's own bound comes last: where it
// stands, the tenant is listed and the bound of all holds.
func (s *Store) stretchBounds(ctx context.Context, tenant string, slot int64) error {
	own, ok, err := s.bound(ctx, tenant, boundFirst)
	if err != nil || ok && own <= slot {
		return err
	}
	firstRow := engine.Mutation{
		Clustering: engine.Key{engine.Text(boundFirst)}, Timestamp: math.MaxInt64/2 - slot, Value: binary.AppendVarint(nil, slot),
	}
	all := engine.Batch{Table: engine.Bounds, Partition: engine.Key{engine.Text("")}, Mutations: []engine.Mutation{
		{Clustering: engine.Key{engine.Text(boundTenant + tenant)}, Timestamp: 1, Value: []byte{1}}, firstRow,
	}}
	if err := s.eng.Write(ctx, []engine.Batch{all}); err != nil {
		return err
	}
	return s.eng.Write(ctx, []engine.Batch{{Table: engine.Bounds, Partition: engine.Key{engine.Text(tenant)}, Mutations: []engine.Mutation{firstRow}}})
}

// firstSlot returns the oldest slot of a tenant that was ever sealed; false: none was.
func (s *Store) firstSlot(ctx context.Context, tenant string) (int64, bool, error) {
	return s.bound(ctx, tenant, boundFirst)
}

func (s *Store) bound(ctx context.Context, tenant, what string) (v int64, ok bool, err error) {
	at := engine.Key{engine.Text(what)}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Bounds, Partition: engine.Key{engine.Text(tenant)}, From: at, To: at}) {
		if err != nil {
			return 0, false, fmt.Errorf("storage: reading bound %q of tenant %q: %w", what, tenant, err)
		}
		v, n := binary.Varint(row.Value)
		if n <= 0 {
			return 0, false, fmt.Errorf("storage: bound %q of tenant %q is malformed", what, tenant)
		}
		return v, true, nil
	}
	return 0, false, nil
}

// Tenants lists the tenants that have, or had, sealed rows.
func (s *Store) Tenants(ctx context.Context) (names []string, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Bounds, Partition: engine.Key{engine.Text("")}}) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing tenants: %w", err)
		}
		if name, ok := strings.CutPrefix(row.Clustering[0].Text, boundTenant); ok {
			names = append(names, strings.Clone(name))
		}
	}
	return names, nil
}

// expires returns when rows of a window may vanish, seconds since 1970; 0: never.
func (s *Store) expires(window int64) int64 {
	if s.opts.Retention == 0 {
		return 0
	}
	return (s.period.windowEnd(window) + s.opts.Retention.Milliseconds() + expireGrace.Milliseconds()) / 1000
}

// expiredWindow returns the newest window whose rows may go: its end, the retention and the grace have
// passed. Without a retention none may.
func (s *Store) expiredWindow() (int64, bool) {
	if s.opts.Retention == 0 {
		return 0, false
	}
	until := s.opts.Now().Add(-s.opts.Retention - expireGrace).UnixMilli()
	return floorDiv(until, s.period.RawWindowMS) - 1, true
}

// Expire drops the windows that are past their retention, and returns how many.
func (s *Store) Expire(ctx context.Context) (windows int, err error) {
	newest, ok := s.expiredWindow()
	if !ok {
		return 0, nil
	}
	first, ok, err := s.bound(ctx, "", boundFirst)
	if err != nil || !ok {
		return 0, err
	}
	window := s.period.windowOf(first)
	if dropped, ok, err := s.bound(ctx, "", boundDropped); err != nil {
		return 0, err
	} else if ok {
		window = max(window, dropped+1)
	}
	for ; window <= newest; window++ {
		for _, t := range []*engine.Table{engine.Raw, engine.Catalog, engine.Metadata, engine.Sealed} {
			if err := s.eng.Drop(ctx, t, engine.Key{engine.Int(window)}); err != nil {
				return windows, fmt.Errorf("storage: dropping window %d of %s: %w", window, t, err)
			}
		}
		windows++
		mark := engine.Mutation{Clustering: engine.Key{engine.Text(boundDropped)}, Timestamp: window, Value: binary.AppendVarint(nil, window)}
		if err := s.eng.Write(ctx, []engine.Batch{{Table: engine.Bounds, Partition: engine.Key{engine.Text("")}, Mutations: []engine.Mutation{mark}}}); err != nil {
			return windows, err
		}
		s.metrics.droppedWindows.Inc()
	}
	return windows, nil
}
