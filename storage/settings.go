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
	have := want
	if !ok {
		have = settings{}
		if err := json.Unmarshal(found, &have); err != nil {
			return Period{}, time.Time{}, fmt.Errorf("storage: the settings row is corrupt: %w", err)
		}
	}
	if have.Format > formatVersion {
		return Period{}, time.Time{}, fmt.Errorf("%w: format %d, this Cassia knows up to %d; use the newer one", ErrNewerFormat, have.Format, formatVersion)
	}
	if len(have.Periods) != 1 || have.Periods[0].SlotMS <= 0 || have.Periods[0].RawWindowMS <= 0 || have.Periods[0].Partitions <= 0 {
		return Period{}, time.Time{}, errors.New("storage: the settings row has no usable period")
	}
	if have.Periods[0] != want.Periods[0] {
		h, w := have.Periods[0], want.Periods[0]
		return Period{}, time.Time{}, fmt.Errorf("%w: slots of %v and %d partitions, asked for %v and %d; start with the former",
			ErrOtherSettings, time.Duration(h.SlotMS)*time.Millisecond, h.Partitions, time.Duration(w.SlotMS)*time.Millisecond, w.Partitions)
	}
	return have.Periods[0], time.UnixMilli(have.CreatedMS), nil
}
