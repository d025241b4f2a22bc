package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// description is the part of the settings by which a store is refused. An engine of files holds a copy that can be read before
// the engine is opened: {"version":1,"periods":[{…}]}.
type description struct {
	Version int             `json:"version"`
	Periods []format.Period `json:"periods,omitempty"`
}

// describeStore gives a copy of the settings to the engine, if it takes one.
func describeStore(ctx context.Context, eng engine.Engine, s settings) error {
	described, ok := engine.As[engine.Described](eng)
	if !ok {
		return nil
	}
	text, err := json.Marshal(description{s.Version, s.Periods})
	if err != nil {
		return err
	}
	return described.DescribeStore(ctx, text)
}

// setSettings replaces the stored settings if they are still old, JSON. The engine gets the format first: a release that doesn't know it
// must not open files which may have such rows. The periods are left out until they are stored: a description with one that isn't would
// refuse every start once it had begun. If the settings aren't replaced, the description stays like that until the store is opened again.
func setSettings(ctx context.Context, eng engine.Engine, old []byte, s settings) (ok bool, found []byte, err error) {
	value, err := json.Marshal(s)
	if err != nil {
		return false, nil, err
	}
	if err := describeStore(ctx, eng, settings{Version: s.Version}); err != nil {
		return false, nil, err
	}
	if ok, found, err = eng.CompareAndSet(ctx, engine.Store, settingsPartition, settingsItem, old, value); ok && err == nil {
		_ = describeStore(ctx, eng, s) // They are stored: Open refuses what the description doesn't, and describes them again.
	}
	return ok, found, err
}

// Admit returns an error for which ErrOlderFormat, ErrNewerFormat or ErrOtherSettings is true if Open would refuse a store, given what it told the engine by
// engine.Described. It is for options of an engine, which calls it before it writes anything.
func Admit(opts Options) func([]byte) error {
	return func(text []byte) error {
		var d description
		if err := json.Unmarshal(text, &d); err != nil {
			return fmt.Errorf("storage: the description of the store is corrupt: %w", err)
		}
		if err := checkVersion(d.Version); err != nil {
			return err
		}
		if len(d.Periods) == 0 {
			return nil
		}
		return opts.checkPeriods(d.Periods)
	}
}
