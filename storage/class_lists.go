package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// The class of a series is a function of its labels and the day. A list of classes is stored once, under a hash of its content; the settings have the history
// of the lists in force; and a raw window takes its list when its first row is written, in the row that fixes its expiry:
//
//	--retention.file ─► list ─► history: in force from a day on ─► first row of a day: the day's list ─► class of a series in the day
//
// So rows of a series have one class in a day, at all resolutions, whichever process writes them and whenever. See decisions/062.

// classLead is how long before it is in force a list is at least added to a store that processes share: by then all of them have read of its classes, and look
// there, and none has fixed the list of that day ahead. Their clocks may differ by a day.
const classLead = 25 * time.Hour

// listFrom is the list of classes that is in force from a time on, milliseconds. ID is "" for the list without classes.
type listFrom struct {
	FromMS int64  `json:"from_ms"`
	ID     string `json:"id,omitempty"`
}

// classList is a list of classes, which never changes.
type classList struct {
	id string
	// tag names it in this process.
	tag     uint32
	classes []listedClass
}

// listedClass is a class of a list: its number, and its matchers as name, operator and value.
type listedClass struct {
	Class int64         `json:"class"`
	Match [][][3]string `json:"match"`
	match [][]*labels.Matcher
}

// noClasses is the list without classes, which isn't stored.
var noClasses = &classList{}

// of returns the class of a series: the first that takes it.
func (l *classList) of(s *head.Series) int64 {
	if len(l.classes) == 0 {
		return classDefault
	}
	class, ok := s.ClassBy(l.tag)
	if !ok {
		class = l.find(s.Labels())
		s.SetClass(l.tag, class)
	}
	return class
}

func (l *classList) find(ls labels.Labels) int64 {
	for i := range l.classes {
		if matchesAny(l.classes[i].match, ls) {
			return l.classes[i].Class
		}
	}
	return classDefault
}

// listOf returns the list of some classes, which are among the known ones, and its row; nil: it has none.
func listOf(classes []Class, known []knownClass) (id string, row []byte, err error) {
	if len(classes) == 0 {
		return "", nil, nil
	}
	list := make([]listedClass, len(classes))
	for i := range classes {
		list[i].Class = numberOf(known, classes[i].Name)
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

// parseList reads a list's row.
func parseList(row []byte) (l *classList, err error) {
	l = &classList{}
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

var matchTypes = [...]labels.MatchType{labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp}

func listPartition(id string) engine.Key { return engine.Key{engine.Text("classes/" + id)} }

var listItem = engine.Key{engine.Text("list")}

// writeList stores a list, unless it is.
func writeList(ctx context.Context, eng engine.Engine, id string, row []byte) error {
	if row == nil {
		return nil
	}
	for try := 1; ; try++ {
		_, _, err := eng.CompareAndSet(ctx, engine.Store, listPartition(id), listItem, nil, row)
		if err == nil {
			return nil
		}
		if !errors.Is(err, engine.ErrUnavailable) || try == addTries || ctx.Err() != nil {
			return fmt.Errorf("storage: writing the list of retention classes: %w", err)
		}
	}
}

// addList returns the history of lists with another one at its end, unless it ends with that. One of a later or the same day is replaced: no row goes by it yet.
func addList(lists []listFrom, id string, from, now int64) []listFrom {
	if n := len(lists); n == 0 && id == "" || n > 0 && lists[n-1].ID == id {
		return lists
	}
	all := slices.DeleteFunc(slices.Clone(lists), func(l listFrom) bool { return l.FromMS >= from })
	for len(all) > 1 && all[1].FromMS < now-2*classLead.Milliseconds() { // A day without rows takes the present list.
		all = all[1:]
	}
	return append(all, listFrom{from, id})
}

// listBegins returns from when a list is in force that is added now, milliseconds. Where one process uses the store, days that have a list keep it, so
// it is in force at once.
func (o *Options) listBegins() int64 {
	if !o.Shared {
		return never
	}
	return -format.FloorDiv(-o.Now().Add(classLead).UnixMilli(), format.DayMS) * format.DayMS
}

// listMemory holds the lists of classes that were read.
type listMemory struct {
	mu sync.Mutex
	of map[string]*classList
}

func (m *listMemory) get(id string) *classList {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[id]
}

// set adds a list, and returns the one that has its id.
func (m *listMemory) set(l *classList) *classList {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.of[l.id]; known != nil {
		return known
	}
	if m.of == nil {
		m.of = map[string]*classList{}
	}
	l.tag = uint32(len(m.of) + 1)
	m.of[l.id] = l
	return l
}

// inForce returns the id of the list that is in force at a time, milliseconds.
func (c *classes) inForce(t int64) (id string) {
	for _, l := range *c.lists.Load() {
		if l.FromMS > t {
			break
		}
		id = l.ID
	}
	return id
}

// newest returns the list that was added last.
func (c *classes) newest() (l listFrom) {
	if lists := *c.lists.Load(); len(lists) > 0 {
		l = lists[len(lists)-1]
	}
	return l
}

// takeOwn reads the list of this process' classes, if it adds them.
func (s *Store) takeOwn(ctx context.Context) error {
	if !s.opts.AddClasses || s.opts.ReadOnly {
		return nil
	}
	id, _, err := listOf(s.opts.Classes, *s.classes.known.Load())
	if err == nil {
		s.classes.own, err = s.classList(ctx, id)
	}
	return err
}

// classList reads a list of classes.
func (s *Store) classList(ctx context.Context, id string) (*classList, error) {
	if id == "" {
		return noClasses, nil
	}
	if l := s.classes.read.get(id); l != nil {
		return l, nil
	}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Store, Partition: listPartition(id)}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the retention classes: %w", err)
		}
		l, err := parseList(row.Value)
		if err != nil {
			return nil, fmt.Errorf("%w: the list %s of retention classes: %w", engine.ErrCorrupt, id, err)
		}
		l.id = id
		if slices.ContainsFunc(l.classes, func(c listedClass) bool { return c.Class >= s.classes.count() }) {
			if err := s.refreshPeriods(ctx); err != nil {
				return nil, err
			}
		}
		return s.classes.read.set(l), nil
	}
	return nil, fmt.Errorf("%w: the list %s of retention classes is missing", engine.ErrCorrupt, id)
}

// listFor returns the id of the list that a window of raw rows takes if its first row is written now: of a day to come, that of the day.
func (s *Store) listFor(window int64) string {
	return s.classes.inForce(max(s.startOf(window), s.clock.EngineTime().UnixMilli()))
}

// classesOn returns the list of classes of a window of raw rows. fixed is false if no row of it was written: then it is the list that it would take now.
func (s *Store) classesOn(ctx context.Context, tenant string, window int64) (l *classList, fixed bool, err error) {
	row, fixed, err := s.fixedExpiry(ctx, expiryAt{tenant, sharedClass, window})
	if err != nil {
		return nil, false, err
	}
	if !fixed {
		row.Classes = s.listFor(window)
	}
	l, err = s.classList(ctx, row.Classes)
	return l, fixed, err
}

// fixClasses is classesOn the day of a slot, and fixes the list if it isn't.
func (s *Store) fixClasses(ctx context.Context, tenant string, slot int64) (*classList, error) {
	row, err := s.fixExpiry(ctx, expiryAt{tenant, sharedClass, s.period.WindowOfSlot(rollup.Raw, slot)})
	if err != nil {
		return nil, err
	}
	return s.classList(ctx, row.Classes)
}

// dayLists are the lists of classes of some days of a tenant.
type dayLists struct {
	s      *Store
	tenant string
	of     map[int64]*classList // by the window of raw rows
}

// at returns the list of the day of a timestamp.
func (d *dayLists) at(ctx context.Context, t int64) (*classList, error) {
	if d.s.classes.count() == 1 {
		return noClasses, nil
	}
	window := d.s.period.RawWindowAt(t)
	if l := d.of[window]; l != nil {
		return l, nil
	}
	l, _, err := d.s.classesOn(ctx, d.tenant, window)
	if err != nil {
		return nil, err
	}
	if d.of == nil {
		d.of = map[int64]*classList{}
	}
	d.of[window] = l
	return l, nil
}

// logLists logs when this process' classes are in force, if that has changed.
func (s *Store) logLists() {
	if s.classes.own == nil {
		return
	}
	last := s.classes.newest()
	replaced := last.ID != s.classes.own.id
	if was := s.classes.told.Swap(&last); was != nil && *was == last || !replaced && (was == nil && last.FromMS <= s.opts.Now().UnixMilli()) {
		return
	}
	switch from := s.instantOf(last.FromMS).Format(time.RFC3339); {
	case replaced:
		s.opts.Logger.Warn("another process was started later with other retention classes, which replace the ones of this process. Start all processes with the same --retention.file",
			"from", from)
	default:
		s.opts.Logger.Info("the retention classes of this process take effect later", "from", from)
	}
}
