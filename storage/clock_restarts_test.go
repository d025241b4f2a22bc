package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestShortRunsSeeNoMoreThanTheyRan starts a new store again and again for seconds, each time with a clock almost 3 days further ahead. The time
// between isn't seen: nothing is dropped, and soon the clock isn't trusted.
func TestShortRunsSeeNoMoreThanTheyRan(t *testing.T) {
	r := alone(t)
	keep := func(o *Options) { o.Retention = 3 * day }
	m := r.start(0, keep)
	for i := range 60 {
		require.NoError(t, m.write(r.now().Add(-time.Duration(i)*time.Hour), 1))
	}
	require.NoError(t, m.SealAll(t.Context()))
	m.stop()
	for i := range 8 {
		m = r.start(time.Duration(i)*29*day/10, keep)
		r.pass(8 * time.Second)
		_, err := m.Expire(t.Context())
		_ = m.Advance(t.Context(), 0)
		require.Equal(t, i > 1, err != nil, "start %d: %v", i, err)
		require.Less(t, m.clock.SeenMS(), time.Hour.Milliseconds())
		m.stop()
	}
	m = r.start(0, keep)
	require.Equal(t, 60, m.visible())
	require.NoError(t, m.write(r.now(), 2))
}
