package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// formatVersion is the newest format of rows that this package writes and reads.
const formatVersion = 1

// rawWindow is the width of a window of raw rows.
const rawWindow = 24 * time.Hour

const (
	hourMS = int64(time.Hour / time.Millisecond)
	dayMS  = 24 * hourMS
)

var (
	// ErrOtherSettings says that the store was created with other settings than those asked for.
	ErrOtherSettings = errors.New("storage: created with other settings")
	// ErrNoStore says that the engine holds no store yet.
	ErrNoStore = errors.New("storage: there is no store yet")
	// ErrNewerFormat says that a newer Cassia wrote the store.
	ErrNewerFormat = errors.New("storage: written in a newer format")
)

// settings is what the store row holds, as JSON: {"format":1,"created_ms":…,"periods":[{…}]}.
type settings struct {
	Format    int      `json:"format"`
	CreatedMS int64    `json:"created_ms"`
	Periods   []Period `json:"periods"`
}

// openSettings reads the store's settings, or writes them if the store is new. Whoever writes first wins.
func openSettings(ctx context.Context, eng engine.Engine, opts Options) (Period, time.Time, error) {
	if opts.Slot == 0 {
		return readSettings(ctx, eng)
	}
	want := settings{
		Format: formatVersion, CreatedMS: opts.Now().UnixMilli(),
		Periods: []Period{{SlotMS: opts.Slot.Milliseconds(), RawWindowMS: rawWindow.Milliseconds(), Partitions: opts.Partitions}},
	}
	value, err := json.Marshal(want)
	if err != nil {
		return Period{}, time.Time{}, err
	}
	ok, found, err := eng.CompareAndSet(ctx, engine.Store, engine.Key{engine.Text("store")}, engine.Key{engine.Text("settings")}, nil, value)
	if err != nil {
		return Period{}, time.Time{}, fmt.Errorf("storage: opening the settings: %w", err)
	}
	if ok {
		return want.Periods[0], time.UnixMilli(want.CreatedMS), nil
	}
	have, err := parseSettings(found)
	if err != nil {
		return Period{}, time.Time{}, err
	}
	if have.Periods[0] != want.Periods[0] {
		h, w := have.Periods[0], want.Periods[0]
		return Period{}, time.Time{}, fmt.Errorf("%w: slots of %v and %d partitions, asked for %v and %d; start with the former",
			ErrOtherSettings, time.Duration(h.SlotMS)*time.Millisecond, h.Partitions, time.Duration(w.SlotMS)*time.Millisecond, w.Partitions)
	}
	return have.Periods[0], time.UnixMilli(have.CreatedMS), nil
}

// readSettings reads the settings of a store that must exist.
func readSettings(ctx context.Context, eng engine.Engine) (Period, time.Time, error) {
	for row, err := range eng.Scan(ctx, engine.Range{Table: engine.Store, Partition: engine.Key{engine.Text("store")}}) {
		if err != nil {
			return Period{}, time.Time{}, fmt.Errorf("storage: reading the settings: %w", err)
		}
		have, err := parseSettings(row.Value)
		if err != nil {
			return Period{}, time.Time{}, err
		}
		return have.Periods[0], time.UnixMilli(have.CreatedMS), nil
	}
	return Period{}, time.Time{}, ErrNoStore
}

func parseSettings(b []byte) (have settings, err error) {
	if err := json.Unmarshal(b, &have); err != nil {
		return have, fmt.Errorf("storage: the settings row is corrupt: %w", err)
	}
	if have.Format > formatVersion {
		return have, fmt.Errorf("%w: format %d, this Cassia knows up to %d; use the newer one", ErrNewerFormat, have.Format, formatVersion)
	}
	if len(have.Periods) != 1 || have.Periods[0].SlotMS <= 0 || have.Periods[0].RawWindowMS <= 0 || have.Periods[0].Partitions <= 0 {
		return have, errors.New("storage: the settings row has no usable period")
	}
	return have, nil
}
