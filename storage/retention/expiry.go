package retention

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/rollup"
)

// On engines that expire rows, all rows of a class in a window expire at the same time. This expiry is fixed before the
// window's first row is written, in a separate row that is inserted once and never changes:
//
//	fixExpiry ─► scan ─┬─ found ──────────────────────────────► cached
//	                   └─ absent ─► CompareAndSet(nil) ─┬─ set ─┤
//	                                    ▲               ├─ found┘
//	                                    └── unknown ────┘
//
// Rows that classes share (names, commit records, metadata) have a separate expiry. It is fixed first, and is the
// latest of all classes. Rows of a class never expire after the rows that classes share. On other engines retention
// boundaries alone decide which rows are removed. On all engines, the row with the shared expiry of a raw window also
// contains the window's list of classes. See design/retention.md.

const (
	// Shared is the class number of rows that classes share: names, commit records, metadata.
	Shared = -1
	// Margin is the time before its expiry from which a window counts as expired and accepts no rows. Rows are
	// therefore written with a positive TTL, and aren't read while nodes with different clocks disagree about their
	// expiry.
	Margin = 24 * time.Hour
	// maxExpiries is the maximum number of cached expiries. When the cache is full, it is cleared.
	maxExpiries = 1 << 16
	// expiriesFresh is the maximum age of a tenant's list of expiries. Expiries that were fixed since then don't matter
	// yet: they are at least Margin plus a day in the future, or belong to windows that the retention hides.
	expiriesFresh = time.Hour
)

// expiryFloors are the minimum times from the end of a window to its expiry, by resolution. Without them, a wrong
// retention that is configured briefly at the start of a window or of a store could delete a month of rollups.
var expiryFloors = [rollup.OneHour + 1]time.Duration{
	rollup.FiveMinutes: 14 * 24 * time.Hour, rollup.OneHour: 35 * 24 * time.Hour,
}

// ErrWindowOver means that a window accepts no rows, because its rows expire within a day or have expired.
var ErrWindowOver = errors.New("storage: the window has expired")

// expiryAt identifies the rows of a class in a window of a tenant.
type expiryAt struct {
	tenant        string
	class, window int64
}

// windowOf identifies a window of a tenant.
type windowOf struct {
	tenant string
	window int64
}

type expiryRow struct {
	// Expires is the time at which the rows expire, in seconds since 1970; 0 means never.
	Expires int64 `json:"expires"`
	// Classes is the id of the window's list of classes. It is set in the shared row of a raw window.
	Classes string `json:"classes,omitempty"`
}

func expiryPartition(tenant string) engine.Key { return engine.Key{engine.Text("expiry/" + tenant)} }

// expiryKey returns the key of an expiry. Keys are ordered by resolution, window and class.
func expiryKey(window, class int64) engine.Key {
	return engine.Key{engine.Text(fmt.Sprintf("%s/%d", expiryPrefix(window), class))}
}

func expiryPrefix(window int64) string {
	return fmt.Sprintf("%d/%016x", format.ResolutionOf(window), uint64(window)^1<<63)
}

// parseExpiry parses the row of an expiry.
func parseExpiry(tenant string, row engine.Row) (at expiryAt, value expiryRow, err error) {
	parts := strings.Split(row.Clustering[0].Text, "/")
	if len(parts) != 3 {
		return at, value, fmt.Errorf("%w: an expiry of tenant %q has the key %q",
			engine.ErrCorrupt, tenant, row.Clustering[0].Text)
	}
	window, err := strconv.ParseUint(parts[1], 16, 64)
	class, errClass := strconv.ParseInt(parts[2], 10, 64)
	if err := errors.Join(err, errClass, json.Unmarshal(row.Value, &value)); err != nil {
		return at, value, fmt.Errorf("%w: the expiry %q of tenant %q: %w",
			engine.ErrCorrupt, row.Clustering[0].Text, tenant, err)
	}
	return expiryAt{tenant, class, int64(window ^ 1<<63)}, value, nil
}

// earlierExpiry returns the earlier of two expiries; 0 means never.
func earlierExpiry(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// isPast reports whether rows with this expiry count as expired.
func (k *Keeper) isPast(expires int64) bool { return expires != 0 && k.pastUntil() >= expires }

// pastUntil returns the latest expiry of rows that count as expired, in seconds since 1970.
func (k *Keeper) pastUntil() int64 { return k.env.Clock.EngineTime().Add(Margin).Unix() }

// wantedExpiry returns the expiry of a class in a window if it were fixed now. It is computed from the longest of three
// retentions: the longest that any process advertises; the retention of the boundary; and, in the week after the
// boundary's retention was lowered, its previous retention.
func (k *Keeper) wantedExpiry(t *Boundaries, at expiryAt) int64 {
	if at.class == Shared {
		last := k.wantedExpiry(t, expiryAt{at.tenant, DefaultClass, at.window})
		for class := int64(1); class < k.Classes() && last != 0; class++ {
			if expires := k.wantedExpiry(t, expiryAt{at.tenant, class, at.window}); expires == 0 || expires > last {
				last = expires
			}
		}
		return last
	}
	res := format.ResolutionOf(at.window)
	keptMS := k.RetentionOf(at.tenant, at.class).Duration(res).Milliseconds()
	if h := t.get(at.class, res); h != nil {
		keptMS = h.longestRetention(keptMS, k.env.Clock.StoredUptimeMS())
	}
	if keptMS == 0 {
		return 0
	}
	forMS := max(keptMS+Grace.Milliseconds(), expiryFloors[res].Milliseconds())
	return (k.env.Period.WindowEnd(at.window) + forMS) / 1000
}

// fixedExpiry returns the expiry of a class in a window. ok is false if the expiry isn't fixed.
func (k *Keeper) fixedExpiry(ctx context.Context, at expiryAt) (row expiryRow, ok bool, err error) {
	if row, ok = k.expiries.get(at); ok {
		return row, true, nil
	}
	if err := k.readExpiriesOf(ctx, windowOf{at.tenant, at.window}); err != nil {
		return row, false, err
	}
	row, ok = k.expiries.get(at)
	return row, ok, nil
}

// LoadExpiries reads the expiries of a window, even if the window is hidden, so that UnexpiredClasses is exact.
func (k *Keeper) LoadExpiries(ctx context.Context, tenant string, window int64) error {
	in := windowOf{tenant, window}
	if !k.env.Expires || k.expiries.isFresh(in, k.Classes(), k.env.Now()) {
		return nil
	}
	return k.readExpiriesOf(ctx, in)
}

func (k *Keeper) readExpiriesOf(ctx context.Context, in windowOf) error {
	found, prefix, now := map[expiryAt]expiryRow{}, expiryPrefix(in.window), k.env.Now()
	for row, err := range k.env.Engine.Scan(ctx, engine.Range{
		Table: engine.Store, Partition: expiryPartition(in.tenant), From: engine.Key{engine.Text(prefix + "/")},
		To: engine.Key{engine.Text(prefix + "0")},
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
	k.expiries.setWindow(in, found, now)
	return nil
}

// fixExpiry returns the expiry of a class in a window, after fixing it if necessary. It retries if the outcome of a
// write is unknown.
func (k *Keeper) fixExpiry(ctx context.Context, at expiryAt) (expiryRow, error) {
	row, ok, err := k.fixedExpiry(ctx, at)
	if ok || err != nil {
		return row, err
	}
	if row, err = k.newExpiry(ctx, at); err != nil {
		return row, err
	}
	value, err := json.Marshal(row)
	if err != nil {
		return row, err
	}
	var found []byte
	for try := 1; ; try++ {
		ok, found, err = k.env.Engine.CompareAndSet(
			ctx, engine.Store, expiryPartition(at.tenant), expiryKey(at.window, at.class), nil, value,
		)
		if err == nil {
			break
		}
		if try == changeTries || ctx.Err() != nil {
			return row, fmt.Errorf("storage: fixing the expiry of window %d of tenant %q: %w",
				at.window, at.tenant, err)
		}
	}
	if !ok {
		fixed := engine.Row{Clustering: expiryKey(at.window, at.class), Value: found}
		if _, row, err = parseExpiry(at.tenant, fixed); err != nil {
			return row, err
		}
	}
	k.expiries.set(at, row)
	return row, nil
}

func (k *Keeper) newExpiry(ctx context.Context, at expiryAt) (row expiryRow, err error) {
	if at.class == Shared && format.ResolutionOf(at.window) == rollup.Raw {
		row.Classes = k.listFor(at.window)
	}
	if !k.env.Expires {
		return row, nil
	}
	t, err := k.completeBoundaries(ctx, at.tenant)
	if err != nil {
		return row, err
	}
	if row.Expires = k.wantedExpiry(t, at); row.Expires != 0 &&
		k.env.Clock.EngineTime().Add(2*Margin).Unix() >= row.Expires {
		// The window accepts no rows, so processes with other lists of classes don't need it. It gets an expiry in the
		// past.
		row.Expires = min(row.Expires, k.env.Clock.EngineTime().Unix())
	}
	return row, nil
}

// Expiry returns the expiry of a class in a window, in seconds since 1970; 0 means never. It fixes the expiry if
// necessary. It returns ErrWindowOver if the window accepts no rows.
func (k *Keeper) Expiry(ctx context.Context, tenant string, class, window int64) (int64, error) {
	if !k.env.Expires {
		return 0, nil
	}
	shared, err := k.fixExpiry(ctx, expiryAt{tenant, Shared, window})
	if err != nil {
		return 0, err
	}
	own, err := k.fixExpiry(ctx, expiryAt{tenant, class, window})
	expires := earlierExpiry(own.Expires, shared.Expires)
	if err == nil && k.isPast(expires) {
		err = fmt.Errorf("%w: window %d of tenant %q", ErrWindowOver, window, tenant)
	}
	return expires, err
}

// fixSlot fixes the expiries of a class in the windows of all resolutions that contain a slot, so that MayBeMissing
// doesn't have to read rows. Raw expiries are fixed even if only rollups are written, to record that there are no raw
// rows.
func (k *Keeper) fixSlot(ctx context.Context, tenant string, class, slot int64) error {
	if !k.env.Expires {
		_, err := k.Boundaries(ctx, tenant)
		return err
	}
	for res := rollup.OneHour + 1; res > rollup.Raw; res-- {
		if _, err := k.Expiry(ctx, tenant, class, k.env.Period.WindowOfSlot(res-1, slot)); err != nil &&
			!errors.Is(err, ErrWindowOver) {
			return err
		}
	}
	return nil
}

// SetExpiry sets the expiry of a batch of rows of a class in a window. It returns the errors of Expiry.
func (k *Keeper) SetExpiry(ctx context.Context, b *engine.Batch, tenant string, class, window int64) (err error) {
	b.Expires, err = k.Expiry(ctx, tenant, class, window)
	return err
}

// HasSharedRows reports whether the rows that classes share in a window haven't expired.
func (k *Keeper) HasSharedRows(ctx context.Context, tenant string, window int64) (bool, error) {
	if !k.env.Expires {
		return true, nil
	}
	shared, ok, err := k.fixedExpiry(ctx, expiryAt{tenant, Shared, window})
	return !ok || !k.isPast(shared.Expires), err
}

// LastExpiry returns the time at which the last rows of a window expire. If it isn't fixed yet, it follows the
// configured retention. time.Unix(0, 0) means never.
func (k *Keeper) LastExpiry(ctx context.Context, tenant string, window int64) (time.Time, error) {
	at := expiryAt{tenant, Shared, window}
	if k.env.Expires {
		if row, ok, err := k.fixedExpiry(ctx, at); ok || err != nil {
			return time.Unix(row.Expires, 0), err
		}
	}
	b, err := k.Boundaries(ctx, tenant)
	return time.Unix(k.wantedExpiry(b, at), 0), err
}

// UnexpiredClasses returns the classes whose rows in a window haven't expired. The caller must call LoadExpiries
// before. It must neither compute from the rows of other classes nor remove these rows.
func (k *Keeper) UnexpiredClasses(tenant string, window int64) (classes []int64) {
	var b *Boundaries
	if k.env.Expires {
		b = k.boundaries.Value(tenant)
	}
	for class := range k.Classes() {
		if !k.hasExpired(b, tenant, class, window) {
			classes = append(classes, class)
		}
	}
	return classes
}

// MayBeMissing reports whether rows of a class may be missing in the window that contains a slot. It uses only cached
// boundaries and expiries: see Boundaries and Placement.
func (k *Keeper) MayBeMissing(res rollup.Resolution, slot int64, tenant string, class int64) bool {
	window, b := k.env.Period.WindowOfSlot(res, slot), k.boundaries.Value(tenant)
	if k.env.Expires {
		return k.hasExpired(b, tenant, class, window)
	}
	h := b.get(class, res)
	return h != nil && h.mayMiss(k.env.Period.WindowEnd(window))
}

// hasExpired reports whether the rows of a class in a window count as expired, according to cached expiries.
func (k *Keeper) hasExpired(t *Boundaries, tenant string, class, window int64) bool {
	return k.isPast(k.knownExpiry(t, tenant, class, window))
}

// knownExpiry returns the expiry of a class in a window according to the cache; 0 means never. If the cache doesn't
// contain it, knownExpiry returns the expiry that would be fixed now.
func (k *Keeper) knownExpiry(t *Boundaries, tenant string, class, window int64) int64 {
	if !k.env.Expires {
		return 0
	}
	// If the own expiry is known and 0, the rows never expire, or there are none yet.
	shared, own, known := k.expiries.getBoth(expiryAt{tenant, class, window})
	last := own.Expires
	if !known && t != nil {
		i, _ := slices.BinarySearchFunc(t.fixed, window, func(f fixedExpiry, w int64) int {
			return cmp.Compare(f.window, w)
		})
		for ; i < len(t.fixed) && t.fixed[i].window == window && !known; i++ {
			last, known = t.fixed[i].expires, t.fixed[i].class == class
		}
	}
	if !known {
		last = k.wantedExpiry(t, expiryAt{tenant, class, window})
	}
	return earlierExpiry(last, shared.Expires)
}

// firstListed returns the first window of a class whose fixed expiry may matter: either the boundary shows the window,
// or the window wouldn't count as expired if its expiry were fixed now. All earlier windows count as expired, see
// hasExpired.
func (k *Keeper) firstListed(t *Boundaries, tenant string, class int64, res rollup.Resolution) int64 {
	h := t.Boundary(class, res)
	if h == nil || h.HiddenMS == Never {
		return format.FirstWindow(res)
	}
	for first := k.env.Period.WindowAt(res, h.HiddenMS+1); ; first-- {
		switch expires := k.wantedExpiry(t, expiryAt{tenant, class, first - 1}); {
		case expires == 0:
			return format.FirstWindow(res)
		case k.isPast(expires):
			return first
		}
	}
}

// listExpiries reads the expiries of a tenant that may matter, see firstListed. It reuses the expiries in known if they
// were read within the last hour and with the same boundaries. known may be nil.
func (k *Keeper) listExpiries(ctx context.Context, tenant string, t, known *Boundaries) error {
	if known != nil && !known.listed.IsZero() && bytes.Equal(known.value, t.value) &&
		membership.Elapsed(known.listed, k.env.Now()) < expiriesFresh {
		t.fixed, t.firstExpiry, t.listed, t.firstRaw = known.fixed, known.firstExpiry, known.listed, known.firstRaw
		return nil
	}
	if !k.env.Expires {
		return nil
	}
	t.listed = k.env.Now()
	found := map[expiryAt]int64{}
	var from [rollup.OneHour + 1][]int64 // the first windows of the classes
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		first := int64(math.MaxInt64)
		for class := range k.Classes() {
			from[res] = append(from[res], k.firstListed(t, tenant, class, res))
			first = min(first, from[res][class])
		}
		for row, err := range k.env.Engine.Scan(ctx, engine.Range{
			Table: engine.Store, Partition: expiryPartition(tenant),
			From: engine.Key{engine.Text(expiryPrefix(first))}, To: engine.Key{engine.Text(fmt.Sprintf("%d0", res))},
		}) {
			if err != nil {
				return fmt.Errorf("storage: reading the expiries of tenant %q: %w", tenant, err)
			}
			at, value, err := parseExpiry(tenant, row)
			if err != nil {
				k.env.Corrupt(engine.Store, err)
				continue
			}
			if now := k.env.Now().UnixMilli(); k.env.Period.WindowEnd(at.window) > now { // Most writes go there.
				k.expiries.set(at, value)
			}
			found[at] = value.Expires
		}
	}
	for of, expires := range found {
		if first := from[format.ResolutionOf(of.window)]; of.class == Shared || of.class >= int64(len(first)) ||
			of.window < first[of.class] {
			continue
		}
		expires = earlierExpiry(expires, found[expiryAt{tenant, Shared, of.window}])
		t.fixed = append(t.fixed, fixedExpiry{of, expires})
		t.firstExpiry = earlierExpiry(t.firstExpiry, expires)
	}
	slices.SortFunc(t.fixed, func(a, b fixedExpiry) int { return cmp.Compare(a.window, b.window) })
	t.firstRaw = from[rollup.Raw]
	return nil
}

// fixedExpiry is the expiry of a class in a window, limited by the expiry of the shared rows.
type fixedExpiry struct {
	expiryAt
	expires int64
}

// fixAhead fixes the expiries of windows that start within a day, so that writers don't have to insert them when a day
// starts. It does so only if this process has written to the current window, and only for the classes whose expiry in
// the current window is fixed. Tenants are handled at different hours of the day.
func (k *Keeper) fixAhead(ctx context.Context, tenant string) error {
	if !k.env.Expires || k.env.Clock.MayRemove() != nil {
		return nil
	}
	now := k.env.Clock.EngineTime()
	lead := time.Hour + time.Duration(xxhash.Sum64String(tenant)%uint64(22*time.Hour))
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		window := k.env.Period.WindowAt(res, now.UnixMilli())
		next := k.env.Period.WindowAt(res, now.Add(lead).UnixMilli())
		if next == window || !k.env.Written(tenant, window) {
			continue
		}
		for class := int64(Shared); class < k.Classes(); class++ {
			if _, ok := k.expiries.get(expiryAt{tenant, class, window}); !ok {
				continue
			}
			if _, err := k.fixExpiry(ctx, expiryAt{tenant, class, next}); err != nil {
				return err
			}
		}
	}
	return nil
}
