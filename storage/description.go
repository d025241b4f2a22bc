package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// description is the part of the settings that can make Open return an error. An engine of files holds a copy that can
// be read before the engine is opened: {"version":1,"periods":[{…}]}.
type description struct {
	Version int             `json:"version"`
	Periods []format.Period `json:"periods,omitempty"`
}

// describeStore passes a copy of the settings to the engine, if it accepts one.
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

// setSettings replaces the stored settings if they still equal old, JSON. It first passes the format to the engine: a
// release that doesn't support it must not open files that may have such rows. Periods are passed after they are
// stored: a description with a period that isn't stored would make every start fail once that period had begun. If the
// settings aren't replaced, the description has no periods until the store is opened again.
func setSettings(ctx context.Context, eng engine.Engine, old []byte, s settings) (ok bool, found []byte, err error) {
	value, err := json.Marshal(s)
	if err != nil {
		return false, nil, err
	}
	if err := describeStore(ctx, eng, settings{Version: s.Version}); err != nil {
		return false, nil, err
	}
	ok, found, err = eng.CompareAndSet(ctx, engine.Store, settingsPartition, settingsItem, old, value)
	if ok && err == nil {
		_ = describeStore(ctx, eng, s) // The settings are stored: Open checks them itself and describes them again.
	}
	return ok, found, err
}

// Admit returns a function that returns an error wrapping ErrOlderFormat, ErrNewerFormat or ErrOtherSettings if Open
// would return one, given the description that the store passed to the engine by engine.Described. It is used as an
// option of an engine, which calls it before it writes anything.
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
