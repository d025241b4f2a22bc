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
	// formatVersion is the version of the row format that this package writes and reads.
	formatVersion = 1
)

// rawWindow is the width of a raw window.
const rawWindow = 24 * time.Hour

var (
	// ErrOtherSettings means that the store was created with settings that differ from Options.
	ErrOtherSettings = errors.New("storage: the store was created with other settings")
	// ErrNoStore means that the engine holds no store yet.
	ErrNoStore = errors.New("storage: there is no store yet")
	// errNewerFormat means that a newer Cassia wrote the store.
	errNewerFormat = errors.New("storage: the store was written in a newer format")
	// errOlderFormat means that a build from before the first release wrote the store.
	errOlderFormat = errors.New("storage: the store was written by a build from before the first release")
)

// settings is the content of the store row, as JSON:
// {"version":1,"created_ms":…,"id":"…","periods":[{…}],"classes":[{…}]}.
type settings struct {
	Version   int   `json:"version"` // formatVersion
	CreatedMS int64 `json:"created_ms"`
	// ID is a random hexadecimal string, created with the store. RestoredMS is the time of the last restore from a
	// backup, or 0 if the store was never restored.
	ID         string `json:"id"`
	RestoredMS int64  `json:"restored_ms,omitempty"`
	// Copy is a random string, created when a directory is restored from a backup. RestoredFrom is the name of that
	// backup. Both are "" if the directory was never restored. Repairing a directory doesn't change them.
	Copy         string          `json:"copy,omitempty"`
	RestoredFrom string          `json:"restored_from,omitempty"`
	Periods      []format.Period `json:"periods"`
	retention.ClassHistory
	// Long lists the rollup windows that may have long chunks, in order.
	Long []int64 `json:"long,omitempty"`
}

var (
	settingsPartition = engine.Key{engine.Text("store")}
	settingsItem      = engine.Key{engine.Text("settings")}
)

// openSettings reads the store's settings. If the store is new, it creates them; if several processes do so, the first
// write wins. created is true if this call created the settings.
func openSettings(ctx context.Context, eng engine.Engine, opts Options) (s settings, created bool, err error) {
	if opts.Slot == 0 || opts.ReadOnly {
		have, _, err := readSettings(ctx, eng)
		if err != nil || opts.ReadOnly {
			return have, false, err
		}
		if have, err = addClasses(ctx, eng, opts, have); err == nil {
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
		have, err = addClasses(ctx, eng, opts, have)
	}
	if err == nil {
		err = describeStore(ctx, eng, have)
	}
	return have, false, err
}

// firstPeriod returns the period of a new store.
func (o *Options) firstPeriod() format.Period {
	return format.Period{
		SlotMS: o.Slot.Milliseconds(), RawWindowMS: rawWindow.Milliseconds(), Partitions: o.newPartitions(),
	}
}

// checkPeriods returns an error if neither the current period nor a scheduled one has the settings in o.
func (o *Options) checkPeriods(periods []format.Period) error {
	if o.Slot == 0 || o.ReadOnly || o.AnySettings {
		return nil
	}
	// If another period is scheduled, the settings may match either the scheduled or the current period.
	now := o.Now().UnixMilli()
	asked, current := o.firstPeriod(), format.NewPeriods(periods...).PeriodAt(now)
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
	return fmt.Errorf(
		"%w: it has %s, but the flags set %s; use the settings of the store", ErrOtherSettings, current, asked,
	)
}

const (
	// createTries is the number of attempts to read or write the settings at startup. The first attempts may fail if
	// the cluster has also just started.
	createTries = 3
	createPause = 500 * time.Millisecond
)

// createSettings writes the settings if there are none. Otherwise it returns the existing settings. If an attempt to
// write returns an error, the settings may still have been written; the next attempt detects this.
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

// identity returns a string that identifies the store's contents and changes when the store is restored.
func (s *settings) identity() string {
	id := s.ID
	if s.RestoredMS != 0 {
		id += "-restored-" + strconv.FormatInt(s.RestoredMS, 10)
	}
	return id
}

// IDOf returns the id of the store in an engine, or "" if there is no store. The id doesn't change when the store is
// restored.
func IDOf(ctx context.Context, eng engine.Engine) (string, error) {
	have, _, err := readSettings(ctx, eng)
	if errors.Is(err, ErrNoStore) {
		return "", nil
	}
	have.RestoredMS = 0
	return have.identity(), err
}

// originalCopy is the copy id of a store that wasn't restored: see CopyIDOf.
const originalCopy = "original"

// CopyIDOf returns three strings: the id of the store in an engine, like IDOf; an id that distinguishes a restored copy
// from its original; and the name of the backup from which the copy was restored, or "" for the original. All are "" if
// there is no store.
func CopyIDOf(ctx context.Context, eng engine.Engine) (store, copy, restoredFrom string, err error) {
	have, _, err := readSettings(ctx, eng)
	if errors.Is(err, ErrNoStore) {
		return "", "", "", nil
	}
	have.RestoredMS = 0
	return have.identity(), cmp.Or(have.Copy, originalCopy), have.RestoredFrom, err
}

// Identity identifies the store's contents. It changes if the store is recreated in the same location or restored from
// a backup. Caches outside the store are valid for one identity.
func (s *Store) Identity() string { return s.identity }

// Created returns when the store was created, and whether this Open created it.
func (s *Store) Created() (at time.Time, now bool) { return s.created, s.isNew }

// MarkRestored changes the identity of the store in an engine, if there is one. Programs that restore an earlier state
// of the store must call it. backup is the name of the backup from which the directory was restored, or "" if the
// directory was repaired.
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
		err = errSettingsContended
	}
	if err != nil {
		return fmt.Errorf("storage: recording that the store was restored: %w", err)
	}
	return nil
}

// readSettings reads the settings of an existing store. It returns the parsed settings and the stored bytes.
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

// checkVersion returns an error if this package doesn't support the row format with the version found.
func checkVersion(found int) error {
	switch {
	case found < formatVersion:
		return fmt.Errorf(
			"%w; to keep its data, export them with the build that wrote it (cassia export), and import them into a "+
				"new store (cassia import openmetrics)",
			errOlderFormat,
		)
	case found > formatVersion:
		return fmt.Errorf(
			"%w: format %d; this release supports format %d. Use the newer release", errNewerFormat, found,
			formatVersion,
		)
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
		return have, fmt.Errorf(
			"storage: the settings row is corrupt: it contains %d periods; the minimum is 1, the maximum %d",
			len(have.Periods), format.MaxPeriods,
		)
	}
	for i, p := range have.Periods {
		if err := p.Check(); err != nil {
			return have, fmt.Errorf("storage: the settings row is corrupt: %w", err)
		}
		if i > 0 && (p.FromMS <= have.Periods[i-1].FromMS || p.Partitions%have.Periods[i-1].Partitions != 0) {
			return have, fmt.Errorf(
				"storage: the settings row is corrupt: period %d doesn't follow the previous one", i,
			)
		}
	}
	if err := have.ClassHistory.Check(); err != nil {
		return have, fmt.Errorf("storage: the settings row is corrupt: %w", err)
	}
	return have, nil
}

// addClasses replaces the stored classes by the configured classes if opts.AddClasses is true, and returns the
// resulting settings.
func addClasses(ctx context.Context, eng engine.Engine, opts Options, have settings) (settings, error) {
	for try := 0; opts.AddClasses; try++ {
		have, before, err := readSettings(ctx, eng)
		if err != nil {
			return have, err
		}
		from := retention.ListStart(opts.Shared, opts.Now())
		if tenants, _, err := TenantsOf(ctx, eng, 1); err != nil {
			return have, err
		} else if len(tenants) == 0 { // The store has no rows.
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
		case err != nil && !errors.Is(err, engine.ErrUnavailable) || try+1 >= changeTries:
			return have, fmt.Errorf("storage: adding retention classes: %w", cmp.Or(err, errSettingsContended))
		}
	}
	return have, nil
}

// changeSettings applies change to the stored settings. If change returns false, nothing is written. change may be
// called more than once.
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
		if err != nil || try == changeTries {
			return fmt.Errorf("storage: changing the settings of the store: %w", cmp.Or(err, errSettingsContended))
		}
	}
}

// changeTries is the number of attempts to change the settings if other processes change them concurrently. addClasses
// also retries if the engine is unavailable.
const changeTries = 5

var errSettingsContended = errors.New("other processes keep changing the settings; try again later")

// refreshPeriods reads the periods, classes and delta tenants that other processes have added.
func (s *Store) refreshPeriods(ctx context.Context) error {
	have, _, err := readSettings(ctx, s.eng)
	if err != nil {
		return err
	}
	s.retention.SetHistory(have.ClassHistory)
	if before := s.period.All(); len(have.Periods) > len(before) {
		s.period.Set(have.Periods)
		for _, p := range have.Periods[len(before):] {
			s.opts.Logger.Info("added a period", "from", time.UnixMilli(p.FromMS).UTC(), "with", p.String())
		}
	}
	return s.starts.Refresh(ctx)
}

// Periods returns the store's periods, ordered by their start.
func (s *Store) Periods() []format.Period { return slices.Clone(s.period.All()) }

// SetPeriod schedules a period with the slot width, window width and number of partitions in want. A field that is 0
// keeps its current value. The period starts at the first window end that is at or after from and more than a day in
// the future. SetPeriod returns the added period, or an error that wraps ErrBadPeriod if no such period is possible.
func (s *Store) SetPeriod(ctx context.Context, want format.Period, from time.Time) (format.Period, error) {
	if err := s.clock.MayRemove(); err != nil {
		return format.Period{}, err
	}
	have, before, err := readSettings(ctx, s.eng)
	if err != nil {
		return format.Period{}, err
	}
	next, err := format.NewPeriods(have.Periods...).NextPeriod(want, from, s.opts.Now())
	if err != nil {
		return format.Period{}, err
	}
	have.Periods = append(have.Periods, next)
	ok, _, err := setSettings(ctx, s.eng, before, have)
	if err != nil {
		return format.Period{}, fmt.Errorf("storage: adding a period: %w", err)
	}
	if !ok {
		return format.Period{}, fmt.Errorf(
			"%w: another process changed the settings concurrently; check them and try again", format.ErrBadPeriod,
		)
	}
	return next, s.refreshPeriods(ctx)
}
