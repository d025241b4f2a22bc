package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/membership"
)

// TestClockLeapsSoonAfterHistoryCame has the clock of a store leap that was just created. If it was filled with history, in the staging log, in windows,
// or as rollups, the clock isn't trusted sooner than that of an old store.
func TestClockLeapsSoonAfterHistoryCame(t *testing.T) {
	t.Parallel()
	const leap = 400 * day
	for name, fill := range map[string]func(m *clockMachine){
		"none": func(m *clockMachine) {
			require.NoError(t, m.write(m.r.now(), 1))
			require.NoError(t, m.SealAll(t.Context()))
		},
		"staged": func(m *clockMachine) { require.NoError(t, m.write(m.r.now().Add(-10*day), 1)) },
		"sealed": func(m *clockMachine) {
			require.NoError(t, m.write(m.r.now().Add(-10*day), 1))
			require.NoError(t, m.SealAll(t.Context()))
		},
		"sealed for two days": func(m *clockMachine) {
			require.NoError(t, m.write(m.r.now().Add(-10*day), 1))
			require.NoError(t, m.SealAll(t.Context()))
			m.runFor(2 * day)
		},
	} {
		for _, restarted := range []bool{false, true} {
			r := alone(t)
			m := r.start(0)
			r.pass(time.Minute)
			fill(m)
			samples := m.visible()
			m.runFor(2 * time.Minute)
			if m.set(leap); restarted {
				m.stop()
				m = r.start(leap)
			}
			rest := leap / 30
			if name == "none" {
				rest = time.Hour
			}
			require.ErrorContains(t, m.clock.MayRemove(), "running evenly for "+rest.String(), name)
			m.runFor(rest - 10*time.Minute)
			require.ErrorIs(t, m.clock.MayRemove(), membership.ErrClock, name)
			require.Equal(t, samples, m.visible(), name)
			require.NoError(t, m.write(r.now(), 2), "a sample of the true time")
			m.runFor(10 * time.Minute)
			require.NoError(t, m.clock.MayRemove(), name)
			m.stop()
		}
	}
}
