package storage

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// writerFunc is an io.Writer.
type writerFunc func(line []byte) (int, error)

func (f writerFunc) Write(line []byte) (int, error) { return f(line) }

// TestHorizonsForgottenAsTheyChange lowers a retention, while somebody else in the process fails to change the horizons, and so forgets
// what is remembered of them.
func TestHorizonsForgottenAsTheyChange(t *testing.T) {
	t.Parallel()
	var forgotten atomic.Int64
	var of atomic.Pointer[Store]
	ts := openTestStore(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
			if s := of.Load(); s != nil {
				s.horizonMemory.forget("default")
				forgotten.Add(1)
			}
			return len(line), nil
		}), nil))
	})
	ts.brings(jobLabels("web"), sample{ts.now.Add(-20 * day).UnixMilli(), 1}, sample{ts.now.UnixMilli(), 2})
	ts.expire(0)
	ts.keeping(2*day, 0, 0)
	of.Store(ts.Store)
	ts.expire(0)
	require.Positive(t, forgotten.Load(), "what is hidden is told between")
}
