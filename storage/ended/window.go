package ended

import (
	"context"
	"iter"
	"time"

	"github.com/cassia-db/cassia/storage/rollup"
)

// After is how long after its end a window is over: most of its last slot has been sealed then.
const After = 3 * time.Hour

// OverWindow is a window of a tenant that is over, and waits to be worked on: the chunks of its series may become long ones, or its series be counted.
type OverWindow struct {
	Tenant     string
	Window     int64
	Resolution rollup.Resolution
	// StartMS and EndMS are what the window spans, milliseconds.
	StartMS, EndMS int64
	// Again is true if the window was worked on, and has been written to since.
	Again bool
	// Version is that of its commit records; where its series are to be counted, its state.
	Version uint64
	// Before is the window before, of one whose series are to be counted, with which these are compared; nil: there is none.
	Before *EarlierWindow
}

// EarlierWindow is the window before an OverWindow, in a state.
type EarlierWindow struct {
	Window int64
	State  uint64
}

// Same reports whether two are the same window, to which nothing was written between.
func (c *OverWindow) Same(o *OverWindow) bool {
	return c.Tenant == o.Tenant && c.Window == o.Window && c.Version == o.Version
}

// All yields windows of all tenants; of yields those of one, and returns whether the caller wants more.
func All(
	ctx context.Context, tenants func(context.Context) ([]string, error), of func(tenant string, yield func(OverWindow) bool) (wanted bool, err error),
) iter.Seq2[OverWindow, error] {
	return func(yield func(OverWindow, error) bool) {
		tenants, err := tenants(ctx)
		for i := 0; i < len(tenants) && err == nil; i++ {
			var wanted bool
			if wanted, err = of(tenants[i], func(w OverWindow) bool { return yield(w, nil) }); err == nil && !wanted {
				return
			}
		}
		if err != nil {
			yield(OverWindow{}, err)
		}
	}
}
