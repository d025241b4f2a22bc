package ended

import (
	"context"
	"iter"
	"time"

	"github.com/cassia-db/cassia/storage/rollup"
)

// EndedAfter is how long after its end a window counts as ended. By then, most of its last slot has been sealed.
const EndedAfter = 3 * time.Hour

// OverWindow is a window of a tenant that has ended and needs background work: its chunks may be compacted into long
// chunks, or its series counted.
type OverWindow struct {
	Tenant     string
	Window     int64
	Resolution rollup.Resolution
	// StartMS and EndMS are the time range of the window in milliseconds.
	StartMS, EndMS int64
	// Again is true if the window was processed before and has been written to since.
	Again bool
	// Version is the version of the window's commit records, or its state if its series are to be counted.
	Version uint64
	// Before is the previous window, with which the series are compared when they are counted. It is nil if there is no
	// previous window.
	Before *EarlierWindow
}

// EarlierWindow identifies the window before an OverWindow and its state.
type EarlierWindow struct {
	Window int64
	State  uint64
}

// IsSame reports whether c and o are the same window without writes in between.
func (c *OverWindow) IsSame(o *OverWindow) bool {
	return c.Tenant == o.Tenant && c.Window == o.Window && c.Version == o.Version
}

// AllWindows yields the windows of all tenants. of yields the windows of one tenant. It returns false if the iteration
// must stop, because the caller wants no more windows.
func AllWindows(
	ctx context.Context, tenants func(
		context.Context,
	) ([]string, error), of func(tenant string, yield func(OverWindow) bool) (wanted bool, err error),
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
