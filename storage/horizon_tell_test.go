package storage

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestRaisingIsTold raises a retention on an engine that expires rows, after the store was stopped for days. The log
// must contain one line about the rows that still expire, and one line about the rows that are visible again, whichever
// operation detects the raised retention first. It must contain no warning.
func TestRaisingIsTold(t *testing.T) {
	for name, first := range map[string]func(*clockMachine) error{
		"expire": func(m *clockMachine) error { _, err := m.Expire(t.Context()); return err },
		"seal":   func(m *clockMachine) error { return m.SealAll(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &clockRig{t: t, shared: true}
			r.eng = &expiringClocked{clockedEngine{memory.NewExpiring(r.now), r.now}}
			var log bytes.Buffer
			keep := func(raw time.Duration) func(*Options) {
				return func(o *Options) { o.Retention, o.Logger = raw, slog.New(slog.NewTextHandler(&log, nil)) }
			}
			m := r.start(0, keep(2*day))
			require.NoError(t, m.write(r.now(), 1))
			require.NoError(t, m.SealAll(t.Context()))
			for range 5 {
				r.pass(day)
				require.NoError(t, m.member.SendHeartbeat(t.Context()))
				_, err := m.Expire(t.Context())
				require.NoError(t, err)
			}
			require.Zero(t, m.visible())
			m.stop()
			r.pass(2 * time.Hour)
			log.Reset()

			m = r.start(0, keep(90*day))
			require.NoError(t, m.member.SendHeartbeat(t.Context()))
			require.NoError(t, m.write(r.now(), 2))
			require.NoError(t, first(m))
			_, err := m.Expire(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2, m.visible())
			require.Equal(
				t, 1, strings.Count(log.String(), "a longer retention applies to windows without rows"), log.String(),
			)
			require.Contains(t, log.String(), "was=48h0m0s is=2160h0m0s")
			require.Equal(
				t, 1, strings.Count(log.String(), "a longer retention shows hidden samples again"), log.String(),
			)
			require.NotContains(t, log.String(), "level=WARN")
			m.stop()

			// The store is stopped for longer than the retention was raised by. Samples past the retention must be
			// hidden without a warning.
			log.Reset()
			r.pass(100 * day)
			m = r.start(0, keep(91*day))
			require.NoError(t, m.member.SendHeartbeat(t.Context()))
			_, err = m.Expire(t.Context())
			require.NoError(t, err)
			require.NotContains(t, log.String(), "a shorter retention", log.String())
		})
	}
}

// TestRetentionLoweredForADay lowers a retention by mistake, for a day, on an engine that expires rows. Samples that
// are written and sealed on this day must expire by the previous retention, which is in force again afterwards.
func TestRetentionLoweredForADay(t *testing.T) {
	t.Parallel()
	r := &clockRig{t: t, shared: true}
	r.eng = &expiringClocked{clockedEngine{memory.NewExpiring(r.now), r.now}}
	running := func(raw, passes time.Duration, then func(*clockMachine)) {
		m := r.start(0, func(o *Options) { o.Retention = raw })
		defer m.stop()
		for range passes / (6 * time.Hour) {
			r.pass(6 * time.Hour)
			require.NoError(t, m.member.SendHeartbeat(t.Context()))
			_, err := m.Expire(t.Context())
			require.NoError(t, err)
		}
		then(m)
	}
	write := func(m *clockMachine) {
		require.NoError(t, m.write(r.now(), 1))
		r.pass(6 * time.Hour)
		require.NoError(t, m.member.SendHeartbeat(t.Context()))
		require.NoError(t, m.SealAll(t.Context()))
	}
	running(90*day, 8*day, write)
	running(2*day, 18*time.Hour, write)
	running(90*day, 20*day, func(m *clockMachine) { require.Equal(t, 2, m.visible()) })
}
