package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// description contains the settings that can make Open return an error. An engine of local files stores them in a file
// that can be read before the engine is opened: {"version":1,"periods":[{…}]}.
type description struct {
	Version int             `json:"version"`
	Periods []format.Period `json:"periods,omitempty"`
}

// describeStore passes the description of the settings to the engine, if the engine accepts one.
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

// setSettings replaces the stored settings, as JSON, if they are still equal to old. It first passes the format version
// to the engine, so that a release without support for the format never opens files that may contain rows in this
// format. It passes the periods to the engine only after they are stored, because a period in the description that
// isn't stored would make every start fail after the beginning of the period. If the settings aren't replaced, the
// description has no periods until the store is opened again.
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
		_ = describeStore(ctx, eng, s) // An error is ignored: the settings are stored, and Open describes them again.
	}
	return ok, found, err
}

// CheckDescription returns an option for an engine: a function that the engine calls with the stored description before
// it writes anything. The function returns an error wrapping errOlderFormat, errNewerFormat or ErrOtherSettings if Open
// would also fail with this error.
func CheckDescription(opts Options) func([]byte) error {
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
