package storage

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
)

const (
	// formatVersion is the version of all rows that this package writes and reads.
	formatVersion = 1
)

// rawWindow is the width of a window of raw rows.
const rawWindow = 24 * time.Hour

var (
	// ErrOtherSettings means that the store was created with other settings than those asked for.
	ErrOtherSettings = errors.New("storage: the store was created with other settings")
	// ErrNoStore means that the engine holds no store yet.
	ErrNoStore = errors.New("storage: there is no store yet")
	// ErrNewerFormat means that a newer Cassia wrote the store.
	ErrNewerFormat = errors.New("storage: the store was written in a newer format")
	// ErrOlderFormat means that a build from before the first release wrote the store.
	ErrOlderFormat = errors.New("storage: the store was written by a build from before the first release")
)

// settings is what the store row holds, as JSON: {"version":1,"created_ms":…,"id":"…","periods":[{…}],"classes":[{…}]}.
type settings struct {
	Version   int   `json:"version"` // formatVersion
	CreatedMS int64 `json:"created_ms"`
	// ID is drawn when the store is created, hexadecimal. RestoredMS is when it was last brought back from a backup; 0: never.
	ID         string `json:"id"`
	RestoredMS int64  `json:"restored_ms,omitempty"`
	// Copy is drawn when a directory is restored from a backup, whose name is RestoredFrom; "": it is the original. A repair of a directory keeps both.
	Copy         string          `json:"copy,omitempty"`
	RestoredFrom string          `json:"restored_from,omitempty"`
	Periods      []format.Period `json:"periods"`
	retention.ClassHistory
	// Long are the windows of rollups that may have long chunks, in order.
	Long []int64 `json:"long,omitempty"`
}

var (
	settingsPartition = engine.Key{engine.Text("store")}
	settingsItem      = engine.Key{engine.Text("settings")}
)

// openSettings reads the store's settings, or writes them if the store is new. Whoever writes first wins.
// created reports whether they were written.
func openSettings(ctx context.Context, eng engine.Engine, opts Options) (s settings, created bool, err error) {
	if opts.Slot == 0 || opts.ReadOnly {
		have, _, err := readSettings(ctx, eng)
		if err != nil || opts.ReadOnly {
			return have, false, err
		}
		if have, err = withClasses(ctx, eng, opts, have); err == nil {
			err = describeStore(ctx, eng, have)
		}
		return have, false, err
	}
	want := settings{
		Version: formatVersion, CreatedMS: opts.Now().UnixMilli(), ID: hex.EncodeToString([]byte(newID())),
		Periods: []format.Period{opts.firstPeriod()},
	}
	if opts.AddClasses {
		if err := want.Add(ctx, eng, opts.Classes, never, opts.Now().UnixMilli()); err != nil {
			return settings{}, false, err
		}
	}
	ok, found, err := createSettings(ctx, eng, want)
	if err != nil {
		return settings{}, false, fmt.Errorf("storage: opening the settings: %w", err)
	}
	if ok {
		return want, true, describeStore(ctx, eng, want)
	}
	have, err := parseSettings(found)
	if err == nil {
		err = opts.checkPeriods(have.Periods)
	}
	if err == nil {
		have, err = withClasses(ctx, eng, opts, have)
	}
	if err == nil {
		err = describeStore(ctx, eng, have)
	}
	return have, false, err
}

// firstPeriod returns the period of a new store.
func (o *Options) firstPeriod() format.Period {
	return format.Period{SlotMS: o.Slot.Milliseconds(), RawWindowMS: rawWindow.Milliseconds(), Partitions: o.newPartitions()}
}

// checkPeriods returns an error for a store that was created with other settings than those that are asked for.
func (o *Options) checkPeriods(periods []format.Period) error {
	if o.Slot == 0 || o.ReadOnly || o.AnySettings {
		return nil
	}
	// While a period is about to begin, both it and the one before are right.
	now := o.Now().UnixMilli()
	asked, current := o.firstPeriod(), format.NewPeriods(periods...).At(now)
	for _, p := range periods {
		as := asked
		if o.Partitions == 0 {
			as.Partitions = p.Partitions
		}
		if p.SameCut(as) && (p.FromMS > now || p == *current) {
			return nil
		}
	}
	if o.Partitions == 0 {
		asked.Partitions = current.Partitions
	}
	return fmt.Errorf("%w: it has %s, but the flags set %s; use the settings of the store", ErrOtherSettings, current, asked)
}

const (
	// createTries is how often the settings are looked for, or written, before a process gives up to start; a
	// cluster that has just been started, too, may need the second.
	createTries = 3
	createPause = 500 * time.Millisecond
)

// createSettings writes the settings unless there are any: then it returns those. A try that failed may have
// written them; the next one finds out.
func createSettings(ctx context.Context, eng engine.Engine, want settings) (ok bool, found []byte, err error) {
	value, err := json.Marshal(want)
	if err != nil {
		return false, nil, err
	}
	for try := 1; ; try++ {
		ok, found, err = eng.CompareAndSet(ctx, engine.Store, settingsPartition, settingsItem, nil, value)
		if !errors.Is(err, engine.ErrUnavailable) || try == createTries {
			return ok, found, err
		}
		select {
		case <-ctx.Done():
			return false, nil, ctx.Err()
		case <-time.After(createPause):
		}
	}
}

// identity distinguishes a store from every other, and from itself before it was restored.
func (s *settings) identity() string {
	id := s.ID
	if s.RestoredMS != 0 {
		id += "-restored-" + strconv.FormatInt(s.RestoredMS, 10)
	}
	return id
}

// IDOf returns the id that distinguishes the store of an engine from every other, restored or not; "" where there is none.
func IDOf(ctx context.Context, eng engine.Engine) (string, error) {
	have, _, err := readSettings(ctx, eng)
	if errors.Is(err, ErrNoStore) {
		return "", nil
	}
	have.RestoredMS = 0
	return have.identity(), err
}

// originalCopy is the copy of a store that wasn't restored.
const originalCopy = "original"

// CopyOf returns the id of the store of an engine, as IDOf does, an id that distinguishes it from the store that it was restored from, and the
// name of the backup from which it was restored; "": it wasn't. All are "" where there is no store.
func CopyOf(ctx context.Context, eng engine.Engine) (store, copy, restoredFrom string, err error) {
	have, _, err := readSettings(ctx, eng)
	if errors.Is(err, ErrNoStore) {
		return "", "", "", nil
	}
	have.RestoredMS = 0
	return have.identity(), cmp.Or(have.Copy, originalCopy), have.RestoredFrom, err
}

// Identity distinguishes the store from every other, one that is made anew at the same place included, and from itself before it
// was brought back from a backup: facts about its contents that are remembered elsewhere hold for one identity.
func (s *Store) Identity() string { return s.identity }

// Created returns when the store was created, and whether opening it did that: there was none.
func (s *Store) Created() (at time.Time, now bool) { return s.created, s.isNew }

// MarkRestored gives the store of an engine, if there is one, another identity. It is for a program that restored an earlier
// state. backup is the name of the backup of which it made the directory; "": it repaired the directory.
func MarkRestored(ctx context.Context, eng engine.Engine, backup string, now time.Time) error {
	have, before, err := readSettings(ctx, eng)
	if errors.Is(err, ErrNoStore) {
		return nil
	}
	if err != nil {
		return err
	}
	have.RestoredMS = max(have.RestoredMS+1, now.UnixMilli())
	if backup != "" {
		have.Copy, have.RestoredFrom = hex.EncodeToString([]byte(newID())), backup
	}
	ok, _, err := setSettings(ctx, eng, before, have)
	if err == nil && !ok {
		err = errOthersAdd
	}
	if err != nil {
		return fmt.Errorf("storage: recording that the store was restored: %w", err)
	}
	return nil
}

// readSettings reads the settings of a store that must exist, and their bytes.
func readSettings(ctx context.Context, eng engine.Engine) (settings, []byte, error) {
	for row, err := range eng.Scan(ctx, engine.Range{Table: engine.Store, Partition: settingsPartition}) {
		if err != nil {
			return settings{}, nil, fmt.Errorf("storage: reading the settings: %w", err)
		}
		have, err := parseSettings(row.Value)
		return have, slices.Clone(row.Value), err
	}
	return settings{}, nil, ErrNoStore
}

// checkVersion returns an error for a version of rows that this package doesn't read.
func checkVersion(found int) error {
	switch {
	case found < formatVersion:
		return fmt.Errorf("%w; to keep its data, export them with the build that wrote it (cassia export), and import them into a new store (cassia import openmetrics)",
			ErrOlderFormat)
	case found > formatVersion:
		return fmt.Errorf("%w: format %d; this release supports format %d. Use the newer release", ErrNewerFormat, found, formatVersion)
	}
	return nil
}

func parseSettings(b []byte) (have settings, err error) {
	if err := json.Unmarshal(b, &have); err != nil {
		return have, fmt.Errorf("storage: the settings row is corrupt: %w", err)
	}
	if err := checkVersion(have.Version); err != nil {
		return have, err
	}
	if len(have.Periods) == 0 || len(have.Periods) > format.MaxPeriods {
		return have, fmt.Errorf("storage: the settings row is corrupt: it contains %d periods; the minimum is 1, the maximum %d", len(have.Periods), format.MaxPeriods)
	}
	for i, p := range have.Periods {
		if err := p.Check(); err != nil {
			return have, fmt.Errorf("storage: the settings row is corrupt: %w", err)
		}
		if i > 0 && (p.FromMS <= have.Periods[i-1].FromMS || p.Partitions%have.Periods[i-1].Partitions != 0) {
			return have, fmt.Errorf("storage: the settings row is corrupt: period %d doesn't follow the previous one", i)
		}
	}
	if err := have.ClassHistory.Check(); err != nil {
		return have, fmt.Errorf("storage: the settings row is corrupt: %w", err)
	}
	return have, nil
}

// withClasses adds the classes that are configured to the store's settings.
func withClasses(ctx context.Context, eng engine.Engine, opts Options, have settings) (settings, error) {
	for try := 0; opts.AddClasses; try++ {
		have, before, err := readSettings(ctx, eng)
		if err != nil {
			return have, err
		}
		from := retention.Begins(opts.Shared, opts.Now())
		if tenants, _, err := TenantsOf(ctx, eng, 1); err != nil {
			return have, err
		} else if len(tenants) == 0 { // There are no rows.
			from = never
		}
		next := have
		if err := next.Add(ctx, eng, opts.Classes, from, opts.Now().UnixMilli()); err != nil {
			return have, err
		}
		if next.Equal(&have.ClassHistory) {
			return have, nil
		}
		ok, _, err := setSettings(ctx, eng, before, next)
		switch {
		case ok:
			return next, nil
		case err != nil && !errors.Is(err, engine.ErrUnavailable) || try+1 >= addTries:
			return have, fmt.Errorf("storage: adding retention classes: %w", cmp.Or(err, errOthersAdd))
		}
	}
	return have, nil
}

// changeSettings changes the settings that are stored, unless change returns false. It may be called several times.
func changeSettings(ctx context.Context, eng engine.Engine, change func(*settings) bool) error {
	for try := 1; ; try++ {
		now, before, err := readSettings(ctx, eng)
		if err != nil || !change(&now) {
			return err
		}
		ok, _, err := setSettings(ctx, eng, before, now)
		if ok {
			return nil
		}
		if err != nil || try == addTries {
			return fmt.Errorf("storage: changing the settings of the store: %w", cmp.Or(err, errOthersAdd))
		}
	}
}

// addTries is how often the settings are changed, where others change the settings meanwhile or no answer comes.
const addTries = 5

var errOthersAdd = errors.New("other processes keep changing the settings; try again later")

// refreshPeriods reads the periods, classes and tenants with deltas that may have been added by another process.
func (s *Store) refreshPeriods(ctx context.Context) error {
	have, _, err := readSettings(ctx, s.eng)
	if err != nil {
		return err
	}
	s.retention.Learn(have.ClassHistory)
	if before := s.period.All(); len(have.Periods) > len(before) {
		s.period.Set(have.Periods)
		for _, p := range have.Periods[len(before):] {
			s.opts.Logger.Info("added a period", "from", time.UnixMilli(p.FromMS).UTC(), "with", p.String())
		}
	}
	return s.starts.Refresh(ctx)
}

// Periods returns how the store cuts time and series, by their beginning.
func (s *Store) Periods() []format.Period { return slices.Clone(s.period.All()) }

// SetPeriod makes time and series be cut otherwise: want's slot, window and partitions, of which 0 means what
// is; from the first end of a window on that is not before from and more than a day ahead. It returns the
// period that was added, or an error that wraps ErrBadPeriod if there can't be such a one.
func (s *Store) SetPeriod(ctx context.Context, want format.Period, from time.Time) (format.Period, error) {
	if err := s.clock.MayRemove(); err != nil {
		return format.Period{}, err
	}
	have, before, err := readSettings(ctx, s.eng)
	if err != nil {
		return format.Period{}, err
	}
	next, err := format.NewPeriods(have.Periods...).Next(want, from, s.opts.Now())
	if err != nil {
		return format.Period{}, err
	}
	have.Periods = append(have.Periods, next)
	ok, _, err := setSettings(ctx, s.eng, before, have)
	if err != nil {
		return format.Period{}, fmt.Errorf("storage: adding a period: %w", err)
	}
	if !ok {
		return format.Period{}, fmt.Errorf("%w: another process changed the settings concurrently; check them and try again", format.ErrBadPeriod)
	}
	return next, s.refreshPeriods(ctx)
}
