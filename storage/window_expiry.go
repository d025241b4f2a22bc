package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// On engines that expire rows by themselves, all rows of a class in a window expire at one time. It is fixed before the window's first row is
// written, in a row of its own that is inserted if absent and never changes:
//
//	fixExpiry ─► scan ─┬─ found ──────────────────────────────► cached
//	                   └─ absent ─► CompareAndSet(nil) ─┬─ set ─┤
//	                                    ▲               ├─ found┘
//	                                    └── in doubt ───┘
//
// Rows that classes share (names, commit records, metadata) have an expiry of their own, the longest of all classes, fixed first; those of a
// class expire with it at the latest. Elsewhere nothing expires: retention boundaries decide alone. See decisions/061.
//
// The shared row of a raw window also has the window's list of classes, on all engines. See decisions/062.

const (
	// sharedClass stands for the rows that classes share.
	sharedClass = -1
	// expiryMargin is how long before its expiry a window takes no rows any more, and counts as expired: rows that are sent until then have a time to
	// live, and nobody reads a window of which some rows have expired by a node's clock and others haven't.
	expiryMargin = 24 * time.Hour
	// maxExpiries bounds the cached expiries; when full, all are released.
	maxExpiries = 1 << 16
	// expiriesFresh is how old a tenant's list of expiries may be. An expiry that was fixed since is at least a day longer than expiryMargin
	// away, or is of a window that its retention hides.
	expiriesFresh = time.Hour
)

// expiryFloors are the shortest times from a window's end to its expiry, by resolution: a retention mistyped at the turn of a window, or in the first
// minutes of a store, must not cost a month of rollups.
var expiryFloors = [resolutions]time.Duration{rollup.FiveMinutes: 14 * 24 * time.Hour, rollup.OneHour: 35 * 24 * time.Hour}

// ErrWindowExpired means that a window takes no rows: those that it has expire within a day, or have expired.
var ErrWindowExpired = errors.New("storage: the window has expired")

// expiryAt names the rows of a class in a window of a tenant.
type expiryAt struct {
	tenant        string
	class, window int64
}

// expiryRow is the value of the row of an expiry.
type expiryRow struct {
	// Expires is when the rows expire, seconds since 1970; 0: never.
	Expires int64 `json:"expires"`
	// Classes is the id of the list of classes, in the shared row of a raw window.
	Classes string `json:"classes,omitempty"`
}

// expiryMemory caches expiries, which never change.
type expiryMemory struct {
	mu sync.Mutex
	of map[expiryAt]expiryRow
	// learned is when the expiries of windows were read: one that isn't in of was fixed later, if it is at all.
	learned map[tenantWindow]time.Time
}

func (m *expiryMemory) get(at expiryAt) (row expiryRow, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row, ok = m.of[at]
	return row, ok
}

func (m *expiryMemory) hasLearned(in tenantWindow) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.learned[in]
	return ok
}

// isFresh reports whether reading the expiries of a window again would show nothing that matters: those of all classes are known, or were read
// within expiriesFresh.
func (m *expiryMemory) isFresh(in tenantWindow, classes int64, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	read, ok := m.learned[in]
	if !ok || membership.Elapsed(read, now) < expiriesFresh {
		return ok
	}
	for class := int64(sharedClass); class < classes; class++ {
		if _, ok := m.of[expiryAt{in.tenant, class, in.window}]; !ok {
			return false
		}
	}
	return true
}

func (m *expiryMemory) set(at expiryAt, row expiryRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bound()
	m.of[at] = row
}

// learn caches all expiries of a window, which were read now.
func (m *expiryMemory) learn(in tenantWindow, found map[expiryAt]expiryRow, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bound()
	maps.Copy(m.of, found)
	m.learned[in] = now
}

func (m *expiryMemory) bound() {
	if m.of == nil || len(m.of) >= maxExpiries || len(m.learned) >= maxExpiries {
		m.of, m.learned = map[expiryAt]expiryRow{}, map[tenantWindow]time.Time{}
	}
}

func expiryPartition(tenant string) engine.Key { return engine.Key{engine.Text("expiry/" + tenant)} }

// expiryKey returns the key of an expiry: in the order of resolutions, windows and classes.
func expiryKey(window, class int64) engine.Key {
	return engine.Key{engine.Text(fmt.Sprintf("%s/%d", expiryPrefix(window), class))}
}

func expiryPrefix(window int64) string {
	return fmt.Sprintf("%d/%016x", format.ResolutionOf(window), uint64(window)^1<<63)
}

// parseExpiry reads the row of an expiry.
func parseExpiry(tenant string, row engine.Row) (at expiryAt, value expiryRow, err error) {
	parts := strings.Split(row.Clustering[0].Text, "/")
	if len(parts) != 3 {
		return at, value, fmt.Errorf("%w: an expiry of tenant %q has the key %q", engine.ErrCorrupt, tenant, row.Clustering[0].Text)
	}
	window, err := strconv.ParseUint(parts[1], 16, 64)
	class, errClass := strconv.ParseInt(parts[2], 10, 64)
	if err := errors.Join(err, errClass, json.Unmarshal(row.Value, &value)); err != nil {
		return at, value, fmt.Errorf("%w: the expiry %q of tenant %q: %w", engine.ErrCorrupt, row.Clustering[0].Text, tenant, err)
	}
	return expiryAt{tenant, class, int64(window ^ 1<<63)}, value, nil
}

// earlier returns the earlier of two expiries; 0: never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// isPast reports whether rows that expire then count as expired.
func (s *Store) isPast(expires int64) bool { return expires != 0 && s.pastUntil() >= expires }

// pastUntil returns the last expiry, seconds since 1970, of rows that count as expired.
func (s *Store) pastUntil() int64 { return s.clock.EngineTime().Add(expiryMargin).Unix() }

// wantedExpiry returns when rows of a class in a window would expire if that were fixed now: by the longest retention that processes advertise
// and that the boundary keeps, in the week after it was lowered also by the one before.
func (s *Store) wantedExpiry(t *tenantHorizons, at expiryAt) int64 {
	if at.class == sharedClass {
		last := s.wantedExpiry(t, expiryAt{at.tenant, retention.DefaultClass, at.window})
		for class := int64(1); class < s.retention.Classes() && last != 0; class++ {
			if expires := s.wantedExpiry(t, expiryAt{at.tenant, class, at.window}); expires == 0 || expires > last {
				last = expires
			}
		}
		return last
	}
	res := format.ResolutionOf(at.window)
	keptMS := s.retention.Keep(at.tenant, at.class).Of(res).Milliseconds()
	if t != nil {
		if h := t.of(at.class, res); h != nil {
			keptMS = h.living(keptMS, s.clock.SeenKept())
		}
	}
	if keptMS == 0 {
		return 0
	}
	return (s.period.WindowEnd(at.window) + max(keptMS+retention.Grace.Milliseconds(), expiryFloors[res].Milliseconds())) / 1000
}

// fixedExpiry returns when the rows of a class in a window expire; ok is false if that isn't fixed.
func (s *Store) fixedExpiry(ctx context.Context, at expiryAt) (row expiryRow, ok bool, err error) {
	if row, ok = s.expiries.get(at); ok {
		return row, true, nil
	}
	if err := s.readExpiriesOf(ctx, tenantWindow{at.tenant, at.window}); err != nil {
		return row, false, err
	}
	row, ok = s.expiries.get(at)
	return row, ok, nil
}

// learnExpiries reads the expiries of a window, so that hasExpired is exact: also for windows that are hidden, which a longer retention may show again.
func (s *Store) learnExpiries(ctx context.Context, in tenantWindow) error {
	if !s.expiring || s.expiries.isFresh(in, s.retention.Classes(), s.opts.Now()) {
		return nil
	}
	return s.readExpiriesOf(ctx, in)
}

func (s *Store) readExpiriesOf(ctx context.Context, in tenantWindow) error {
	found, prefix, now := map[expiryAt]expiryRow{}, expiryPrefix(in.window), s.opts.Now()
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Store, Partition: expiryPartition(in.tenant), From: engine.Key{engine.Text(prefix + "/")}, To: engine.Key{engine.Text(prefix + "0")},
	}) {
		var at expiryAt
		var value expiryRow
		if err == nil {
			at, value, err = parseExpiry(in.tenant, row)
		}
		if err != nil {
			return fmt.Errorf("storage: reading the expiries of window %d of tenant %q: %w", in.window, in.tenant, err)
		}
		found[at] = value
	}
	s.expiries.learn(in, found, now)
	return nil
}

// fixExpiry is fixedExpiry that fixes it where it isn't. An insert whose outcome is unknown is repeated, which reads the inserted one.
func (s *Store) fixExpiry(ctx context.Context, at expiryAt) (expiryRow, error) {
	row, ok, err := s.fixedExpiry(ctx, at)
	if ok || err != nil {
		return row, err
	}
	if row, err = s.newExpiry(ctx, at); err != nil {
		return row, err
	}
	value, err := json.Marshal(row)
	if err != nil {
		return row, err
	}
	var found []byte
	for try := 1; ; try++ {
		ok, found, err = s.eng.CompareAndSet(ctx, engine.Store, expiryPartition(at.tenant), expiryKey(at.window, at.class), nil, value)
		if err == nil {
			break
		}
		if try == advanceTries || ctx.Err() != nil {
			return row, fmt.Errorf("storage: fixing the expiry of window %d of tenant %q: %w", at.window, at.tenant, err)
		}
	}
	if !ok {
		if _, row, err = parseExpiry(at.tenant, engine.Row{Clustering: expiryKey(at.window, at.class), Value: found}); err != nil {
			return row, err
		}
	}
	s.expiries.set(at, row)
	return row, nil
}

// newExpiry returns the row of an expiry that isn't fixed.
func (s *Store) newExpiry(ctx context.Context, at expiryAt) (row expiryRow, err error) {
	if at.class == sharedClass && format.ResolutionOf(at.window) == rollup.Raw {
		row.Classes = s.listFor(at.window)
	}
	if !s.expiring {
		return row, nil
	}
	t, err := s.boundariesToKeep(ctx, at.tenant)
	if err != nil {
		return row, err
	}
	if row.Expires = s.wantedExpiry(t, at); row.Expires != 0 && s.clock.EngineTime().Add(2*expiryMargin).Unix() >= row.Expires {
		row.Expires = min(row.Expires, s.clock.EngineTime().Unix()) // Others' lists needn't have it: it takes no rows.
	}
	return row, nil
}

// sharedExpiry returns when the rows that classes share in a window expire, seconds since 1970; 0: never. ErrWindowExpired: the window takes none.
func (s *Store) sharedExpiry(ctx context.Context, tenant string, window int64) (int64, error) {
	if !s.expiring {
		return 0, nil
	}
	shared, err := s.fixExpiry(ctx, expiryAt{tenant, sharedClass, window})
	return s.notPast(tenant, window, shared.Expires, err)
}

// expiryOf is sharedExpiry of the rows of a class.
func (s *Store) expiryOf(ctx context.Context, tenant string, class, window int64) (int64, error) {
	if !s.expiring {
		return 0, nil
	}
	shared, err := s.fixExpiry(ctx, expiryAt{tenant, sharedClass, window})
	if err != nil {
		return 0, err
	}
	own, err := s.fixExpiry(ctx, expiryAt{tenant, class, window})
	return s.notPast(tenant, window, earlier(own.Expires, shared.Expires), err)
}

func (s *Store) notPast(tenant string, window, expires int64, err error) (int64, error) {
	if err == nil && s.isPast(expires) {
		err = fmt.Errorf("%w: window %d of tenant %q", ErrWindowExpired, window, tenant)
	}
	return expires, err
}

// fixSlot fixes the expiries of a class in the windows of all resolutions that hold a slot, so that isGone reads no rows. Those of raw are fixed also
// where only rollups are written: then they say that there is no raw.
func (s *Store) fixSlot(ctx context.Context, tenant string, class, slot int64) error {
	if !s.expiring {
		_, err := s.horizonsOf(ctx, tenant)
		return err
	}
	for res := rollup.OneHour + 1; res > rollup.Raw; res-- {
		if _, err := s.expiryOf(ctx, tenant, class, s.period.WindowOfSlot(res-1, slot)); err != nil && !errors.Is(err, ErrWindowExpired) {
			return err
		}
	}
	return nil
}

// sharedExpired reports whether the rows that classes share in a window count as expired.
func (s *Store) sharedExpired(ctx context.Context, tenant string, window int64) (bool, error) {
	if !s.expiring {
		return false, nil
	}
	shared, ok, err := s.fixedExpiry(ctx, expiryAt{tenant, sharedClass, window})
	return ok && s.isPast(shared.Expires), err
}

// hasExpired reports whether the rows of a class in a window count as expired, as far as this process has read.
func (s *Store) hasExpired(t *tenantHorizons, tenant string, class, window int64) bool {
	if !s.expiring {
		return false
	}
	shared, _ := s.expiries.get(expiryAt{tenant, sharedClass, window})
	own, known := s.expiries.get(expiryAt{tenant, class, window})
	if !known && s.expiries.hasLearned(tenantWindow{tenant, window}) {
		return s.isPast(shared.Expires) // Its rows come later, if at all.
	}
	last := own.Expires
	if !known && t != nil {
		i, _ := slices.BinarySearchFunc(t.fixed, window, func(f fixedExpiry, w int64) int { return cmp.Compare(f.window, w) })
		for ; i < len(t.fixed) && t.fixed[i].window == window && !known; i++ {
			last, known = t.fixed[i].expires, t.fixed[i].class == class
		}
	}
	if !known {
		last = s.wantedExpiry(t, expiryAt{tenant, class, window})
	}
	return s.isPast(earlier(last, shared.Expires))
}

// windowClass names the rows of a class in a window.
type windowClass struct{ window, class int64 }

// firstListed returns the first window of a class of which the fixed expiry may matter: all that its boundary shows, and those before that would still
// stand if their expiry were fixed now. The others count as expired, see hasExpired.
func (s *Store) firstListed(t *tenantHorizons, tenant string, class int64, res rollup.Resolution) int64 {
	h := t.of(class, res)
	if h == nil || h.HiddenMS == never {
		return format.FirstWindow(res)
	}
	for first := s.period.WindowAt(res, h.HiddenMS+1); ; first-- {
		switch expires := s.wantedExpiry(t, expiryAt{tenant, class, first - 1}); {
		case expires == 0:
			return format.FirstWindow(res)
		case s.isPast(expires):
			return first
		}
	}
}

// readExpiries reads the expiries of a tenant that may matter, see firstListed.
func (s *Store) readExpiries(ctx context.Context, tenant string, t *tenantHorizons) error {
	if !s.expiring {
		return nil
	}
	t.fixed, t.firstExpiry, t.listed = nil, 0, s.opts.Now()
	found := map[windowClass]int64{}
	var from [resolutions][]int64 // the first windows of the classes
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		first := int64(math.MaxInt64)
		for class := range s.retention.Classes() {
			from[res] = append(from[res], s.firstListed(t, tenant, class, res))
			first = min(first, from[res][class])
		}
		for row, err := range s.eng.Scan(ctx, engine.Range{
			Table: engine.Store, Partition: expiryPartition(tenant),
			From: engine.Key{engine.Text(expiryPrefix(first))}, To: engine.Key{engine.Text(fmt.Sprintf("%d0", res))},
		}) {
			if err != nil {
				return fmt.Errorf("storage: reading the expiries of tenant %q: %w", tenant, err)
			}
			at, value, err := parseExpiry(tenant, row)
			if err != nil {
				s.damage.Corrupt(engine.Store, err)
				continue
			}
			if now := s.opts.Now().UnixMilli(); s.period.WindowEnd(at.window) > now { // It is written most.
				s.expiries.set(at, value)
			}
			found[windowClass{at.window, at.class}] = value.Expires
		}
	}
	for of, expires := range found {
		if of.class == sharedClass {
			continue
		}
		if first := from[format.ResolutionOf(of.window)]; of.class >= int64(len(first)) || of.window < first[of.class] {
			continue
		}
		expires = earlier(expires, found[windowClass{of.window, sharedClass}])
		t.fixed = append(t.fixed, fixedExpiry{of, expires})
		t.firstExpiry = earlier(t.firstExpiry, expires)
	}
	slices.SortFunc(t.fixed, func(a, b fixedExpiry) int { return cmp.Compare(a.window, b.window) })
	return nil
}

// takeExpiries takes the expiries that were read before, or reads them: after an hour, or where the boundaries have changed.
func (s *Store) takeExpiries(ctx context.Context, tenant string, t, known *tenantHorizons) error {
	if known != nil && !known.listed.IsZero() && bytes.Equal(known.value, t.value) && membership.Elapsed(known.listed, s.opts.Now()) < expiriesFresh {
		t.fixed, t.firstExpiry, t.listed = known.fixed, known.firstExpiry, known.listed
		return nil
	}
	return s.readExpiries(ctx, tenant, t)
}

// fixedExpiry is when the rows of a class in a window expire, at the latest with those that classes share.
type fixedExpiry struct {
	windowClass
	expires int64
}

// fixAhead fixes the expiries of the windows that begin within a day, so that the turn of a day costs no inserts: each tenant at an hour of its own, if this
// process has written to its present window. Of classes it takes those that have an expiry there.
func (s *Store) fixAhead(ctx context.Context, tenant string) error {
	if !s.expiring || s.clock.MayRemove() != nil {
		return nil
	}
	now := s.clock.EngineTime()
	lead := time.Hour + time.Duration(xxhash.Sum64String(tenant)%uint64(22*time.Hour))
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		window, next := s.period.WindowAt(res, now.UnixMilli()), s.period.WindowAt(res, now.Add(lead).UnixMilli())
		if _, ok := s.windows.get(tenantWindow{tenant, window}); next == window || !ok {
			continue
		}
		for class := int64(sharedClass); class < s.retention.Classes(); class++ {
			if _, ok := s.expiries.get(expiryAt{tenant, class, window}); !ok {
				continue
			}
			if _, err := s.fixExpiry(ctx, expiryAt{tenant, class, next}); err != nil {
				return err
			}
		}
	}
	return nil
}
