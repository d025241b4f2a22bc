package retention

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// The class of a series depends on its labels and the day. A list of classes is stored once, under a hash of its
// content. The settings contain the history of the lists in force. A raw window gets its list when its first row is
// written, in the row that fixes its expiry:
//
//	--retention.file ─► list ─► history: in force since a day ─► first row of a day: the day's list ─► class of a series in the day
//
// All rows of a series on a day are therefore in the same class, at all resolutions, whichever process writes them and
// whenever. See design/retention.md.

// classLead is the minimum time between adding a list to a shared store and its first day, given that clocks may differ
// by a day. By then all processes have read the classes of the list, so that their queries read the rows of these
// classes, and no process has fixed an older list for that day in advance.
const classLead = 25 * time.Hour

// ClassHistory is the part of a store's settings that concerns classes.
type ClassHistory struct {
	// Classes lists all current and former classes. No class is ever removed.
	Classes []KnownClass `json:"classes,omitempty"`
	// Lists are the lists of classes that are or will be in force, ordered by FromMS.
	Lists []ListFrom `json:"class_lists,omitempty"`
}

// ListFrom is a list of classes that is in force from FromMS, in milliseconds, until the next list. ID is "" for the
// list without classes.
type ListFrom struct {
	FromMS int64  `json:"from_ms"`
	ID     string `json:"id,omitempty"`
}

// Check returns an error if the history has too many classes.
func (h *ClassHistory) Check() error {
	if len(h.Classes) > maxKnownClasses {
		return fmt.Errorf("it contains %d retention classes; the maximum is %d", len(h.Classes), maxKnownClasses)
	}
	return nil
}

// Equal reports whether two histories are the same.
func (h *ClassHistory) Equal(other *ClassHistory) bool {
	return slices.Equal(h.Classes, other.Classes) && slices.Equal(h.Lists, other.Lists)
}

// numberOf returns the number of a class, or 0 if the class is unknown.
func (h *ClassHistory) numberOf(name string) int64 {
	return int64(slices.IndexFunc(h.Classes, func(k KnownClass) bool { return k.Name == name })) + 1
}

// inForce returns the id of the list that is in force at a time, in milliseconds.
func (h *ClassHistory) inForce(t int64) (id string) {
	for _, l := range h.Lists {
		if l.FromMS > t {
			break
		}
		id = l.ID
	}
	return id
}

// newest returns the list that was added last.
func (h *ClassHistory) newest() (l ListFrom) {
	if n := len(h.Lists); n > 0 {
		l = h.Lists[n-1]
	}
	return l
}

// Add adds the configured classes with their retention, and stores their list. The list is in force after from, in
// milliseconds, as returned by ListStart.
func (h *ClassHistory) Add(ctx context.Context, eng engine.Engine, configured []Class, from, now int64) error {
	if err := h.addClasses(configured); err != nil {
		return err
	}
	id, row, err := h.listOf(configured)
	if err == nil {
		err = writeList(ctx, eng, id, row)
	}
	h.addList(ListFrom{from, id}, now)
	return err
}

func (h *ClassHistory) addClasses(configured []Class) error {
	h.Classes = slices.Clone(h.Classes)
	for i := range configured {
		c := &configured[i]
		at := h.numberOf(c.Name) - 1
		if at < 0 {
			at = int64(len(h.Classes))
			h.Classes = append(h.Classes, KnownClass{Name: c.Name})
		}
		h.Classes[at].KeptMS = toKeptMS(c.Durations)
	}
	if len(h.Classes) > maxKnownClasses {
		return fmt.Errorf("%w: the store would have %d class names; the maximum is %d. Reuse earlier names",
			ErrBadClasses, len(h.Classes), maxKnownClasses)
	}
	return nil
}

// addList adds list l unless it equals the last list. It replaces lists of the same or a later day, because no row uses
// these lists yet.
func (h *ClassHistory) addList(l ListFrom, now int64) {
	if h.newest().ID == l.ID {
		return
	}
	all := slices.DeleteFunc(slices.Clone(h.Lists), func(x ListFrom) bool { return x.FromMS >= l.FromMS })
	for len(all) > 1 && all[1].FromMS < now-2*classLead.Milliseconds() { // Days without rows use the current list.
		all = all[1:]
	}
	h.Lists = append(all, l)
}

// ListStart returns the time, in milliseconds, at which a list that is added now takes effect. In a store with one
// process it takes effect immediately, because days that already have a list keep it.
func ListStart(shared bool, now time.Time) int64 {
	if !shared {
		return Never
	}
	return -format.FloorDiv(-now.Add(classLead).UnixMilli(), format.DayMS) * format.DayMS
}

// ClassList is a list of classes. It is immutable.
type ClassList struct {
	id string
	// tag is a number that identifies the list within this process.
	tag     uint32
	classes []listedClass
}

// listedClass is a class in a list: its number, and its matchers as name, operator and value.
type listedClass struct {
	Class int64         `json:"class"`
	Match [][][3]string `json:"match"`
	match [][]*labels.Matcher
}

// noClasses is the list without classes. It isn't stored.
var noClasses = &ClassList{}

// ID returns the hash of the list.
func (l *ClassList) ID() string { return l.id }

// ClassOf returns the class of a series: the first class that matches it.
func (l *ClassList) ClassOf(s *head.Series) int64 {
	if len(l.classes) == 0 {
		return DefaultClass
	}
	class, ok := s.ClassForTag(l.tag)
	if !ok {
		class = l.ClassOfLabels(s.Labels())
		s.SetClass(l.tag, class)
	}
	return class
}

// ClassOfLabels returns the class of a series with these labels.
func (l *ClassList) ClassOfLabels(ls labels.Labels) int64 {
	for i := range l.classes {
		if matchesAny(l.classes[i].match, ls) {
			return l.classes[i].Class
		}
	}
	return DefaultClass
}

// listOf returns the id and the row of a list of classes. All classes must be known. The row is nil for the list
// without classes.
func (h *ClassHistory) listOf(classes []Class) (id string, row []byte, err error) {
	if len(classes) == 0 {
		return "", nil, nil
	}
	list := make([]listedClass, len(classes))
	for i := range classes {
		list[i].Class = h.numberOf(classes[i].Name)
		for _, ms := range classes[i].Match {
			texts := make([][3]string, len(ms))
			for j, m := range ms {
				texts[j] = [3]string{m.Name, m.Type.String(), m.Value}
			}
			list[i].Match = append(list[i].Match, texts)
		}
	}
	if row, err = json.Marshal(list); err != nil {
		return "", nil, err
	}
	hash := sha256.Sum256(row)
	return hex.EncodeToString(hash[:engine.IDLen]), row, nil
}

// parseList parses the row of a list.
func parseList(id string, row []byte) (l *ClassList, err error) {
	l = &ClassList{id: id}
	if err := json.Unmarshal(row, &l.classes); err != nil {
		return nil, err
	}
	for i := range l.classes {
		for _, texts := range l.classes[i].Match {
			ms := make([]*labels.Matcher, len(texts))
			for j, m := range texts {
				of := slices.IndexFunc(matchTypes[:], func(t labels.MatchType) bool { return t.String() == m[1] })
				if of < 0 {
					return nil, fmt.Errorf("unknown operator %q", m[1])
				}
				if ms[j], err = labels.NewMatcher(matchTypes[of], m[0], m[2]); err != nil {
					return nil, err
				}
			}
			l.classes[i].match = append(l.classes[i].match, ms)
		}
	}
	return l, nil
}

var matchTypes = [...]labels.MatchType{
	labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp,
}

func listPartition(id string) engine.Key { return engine.Key{engine.Text("classes/" + id)} }

var listItem = engine.Key{engine.Text("list")}

// listTries is the number of attempts to write a list.
const listTries = 5

// writeList stores a list if it isn't stored yet.
func writeList(ctx context.Context, eng engine.Engine, id string, row []byte) error {
	if row == nil {
		return nil
	}
	for try := 1; ; try++ {
		_, _, err := eng.CompareAndSet(ctx, engine.Store, listPartition(id), listItem, nil, row)
		if err == nil {
			return nil
		}
		if !errors.Is(err, engine.ErrUnavailable) || try == listTries || ctx.Err() != nil {
			return fmt.Errorf("storage: writing the list of retention classes: %w", err)
		}
	}
}

// listMemory caches lists of classes.
type listMemory struct {
	mu sync.Mutex
	of map[string]*ClassList
}

func (m *listMemory) get(id string) *ClassList {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[id]
}

// set adds a list, or returns the cached list with the same id.
func (m *listMemory) set(l *ClassList) *ClassList {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.of[l.id]; known != nil {
		return known
	}
	if m.of == nil {
		m.of = map[string]*ClassList{}
	}
	l.tag = uint32(len(m.of) + 1)
	m.of[l.id] = l
	return l
}

// List returns the list of classes with an id, and reads it if it isn't cached.
func (k *Keeper) List(ctx context.Context, id string) (*ClassList, error) {
	if id == "" {
		return noClasses, nil
	}
	if l := k.lists.get(id); l != nil {
		return l, nil
	}
	for row, err := range k.env.Engine.Scan(ctx, engine.Range{Table: engine.Store, Partition: listPartition(id)}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the retention classes: %w", err)
		}
		l, err := parseList(id, row.Value)
		if err != nil {
			return nil, fmt.Errorf("%w: the list %s of retention classes: %w", engine.ErrCorrupt, id, err)
		}
		if slices.ContainsFunc(l.classes, func(c listedClass) bool { return c.Class >= k.Classes() }) {
			if err := k.env.Refresh(ctx); err != nil {
				return nil, err
			}
		}
		return k.lists.set(l), nil
	}
	return nil, fmt.Errorf("%w: the list %s of retention classes is missing", engine.ErrCorrupt, id)
}

// Open reads the list of this process's classes, if the process adds classes to the store.
func (k *Keeper) Open(ctx context.Context) error {
	if !k.env.AddsClasses {
		return nil
	}
	id, _, err := k.history.Load().listOf(k.env.Configured.Classes)
	if err == nil {
		k.ownList, err = k.List(ctx, id)
	}
	if err == nil {
		k.logLists()
	}
	return err
}

// logLists logs when this process's classes take effect, if that time has changed.
func (k *Keeper) logLists() {
	if k.ownList == nil {
		return
	}
	last := k.history.Load().newest()
	replaced := last.ID != k.ownList.id
	if was := k.logged.Swap(&last); was != nil && *was == last ||
		!replaced && (was == nil && last.FromMS <= k.env.Now().UnixMilli()) {
		return
	}
	switch from := timeOf(last.FromMS).Format(time.RFC3339); {
	case replaced:
		k.env.Logger.Warn(
			"another process was started later with other retention classes, which replace the ones of this process. "+
				"Start all processes with the same --retention.file",
			"from", from,
		)
	default:
		k.env.Logger.Info("the retention classes of this process take effect later", "from", from)
	}
}

// listFor returns the id of the list that a raw window gets if its first row is written now. A future window gets the
// list that is in force when its day begins.
func (k *Keeper) listFor(window int64) string {
	return k.ListInForce(max(k.env.Period.WindowStart(window), k.env.Clock.EngineTime().UnixMilli()))
}

// ClassesOn returns the list of classes of a raw window. If the window has no rows yet, fixed is false, and ClassesOn
// returns the list that the window would get now.
func (k *Keeper) ClassesOn(ctx context.Context, tenant string, window int64) (l *ClassList, fixed bool, err error) {
	row, fixed, err := k.fixedExpiry(ctx, expiryAt{tenant, Shared, window})
	if err != nil {
		return nil, false, err
	}
	if !fixed {
		row.Classes = k.listFor(window)
	}
	l, err = k.List(ctx, row.Classes)
	return l, fixed, err
}

// FixClasses returns the list of classes of the raw window that contains a slot, after fixing it if necessary.
func (k *Keeper) FixClasses(ctx context.Context, tenant string, slot int64) (*ClassList, error) {
	row, err := k.fixExpiry(ctx, expiryAt{tenant, Shared, k.env.Period.WindowOfSlot(rollup.Raw, slot)})
	if err != nil {
		return nil, err
	}
	return k.List(ctx, row.Classes)
}

// DayLists caches the lists of classes for the days of a tenant.
type DayLists struct {
	k      *Keeper
	tenant string
	of     map[int64]*ClassList // by raw window
}

// NewDayLists returns the lists of classes for the days of a tenant. ListAt reads a list when it is first needed.
func (k *Keeper) NewDayLists(tenant string) DayLists { return DayLists{k: k, tenant: tenant} }

// ListAt returns the list for the day of a timestamp.
func (d *DayLists) ListAt(ctx context.Context, t int64) (*ClassList, error) {
	if d.k.Classes() == 1 {
		return noClasses, nil
	}
	window := d.k.env.Period.RawWindowAt(t)
	if l := d.of[window]; l != nil {
		return l, nil
	}
	l, _, err := d.k.ClassesOn(ctx, d.tenant, window)
	if err != nil {
		return nil, err
	}
	if d.of == nil {
		d.of = map[int64]*ClassList{}
	}
	d.of[window] = l
	return l, nil
}

// ImportClasses returns the list of classes for the day of a slot, after fixing it if necessary. If the import would
// store no rows of the series, it returns nil and fixes nothing. It returns an error if the day has no list yet and
// this process's classes, which aren't in force yet, make a difference to the import: with them, a series would be
// stored that isn't stored with the list in force, or a series would be stored at a finer resolution.
func (k *Keeper) ImportClasses(
	ctx context.Context, tenant string, slot int64, series iter.Seq[*head.Series],
) (*ClassList, error) {
	list, fixed, err := k.ClassesOn(ctx, tenant, k.env.Period.WindowOfSlot(rollup.Raw, slot))
	if err != nil || fixed {
		return list, err
	}
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return nil, err
	}
	own, last, takesAny := k.ownList, k.history.Load().newest(), false
	if own != nil && (own == list || last.ID != own.id) {
		own = nil
	}
	for s := range series {
		finest, takes := k.acceptsNew(b, tenant, list.ClassOf(s), slot)
		takesAny = takesAny || takes
		if own == nil {
			continue
		}
		if ownFinest, ok := k.acceptsNew(b, tenant, own.ClassOf(s), slot); ok && (!takes || ownFinest < finest) {
			return nil, fmt.Errorf(
				"%w: the samples are past the retention that is in force; the retention classes of this process, "+
					"which keep them, are in force from %s on: repeat the import then",
				engine.ErrUnavailable, timeOf(last.FromMS).Format(time.RFC3339),
			)
		}
	}
	if !takesAny {
		return nil, nil
	}
	return k.FixClasses(ctx, tenant, slot)
}

// acceptsNew returns the finest resolution at which the first rows of a class would be stored in the windows that
// contain a slot. ok is false if none would be stored.
func (k *Keeper) acceptsNew(b *Boundaries, tenant string, class, slot int64) (finest rollup.Resolution, ok bool) {
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		past := k.isOutlived(res, slot, k.RetentionOf(tenant, class)) // An import restores dropped windows.
		if k.env.Expires && (res < rollup.OneHour || !past) {
			past = k.isPast(k.wantedExpiry(b, expiryAt{tenant, class, k.env.Period.WindowOfSlot(res, slot)}))
		}
		if !past {
			return res, true
		}
	}
	return 0, false
}
