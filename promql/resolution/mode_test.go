package resolution

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModes(t *testing.T) {
	for _, m := range []Mode{ModeAuto, ModeExact, ModeRaw, ModeFiveMinutes, ModeOneHour} {
		back, err := ParseMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, back)
	}
	m, err := ParseMode("")
	require.NoError(t, err)
	require.Equal(t, ModeAuto, m)
	_, err = ParseMode("2h")
	require.ErrorIs(t, err, ErrUnknownMode)
	require.ErrorContains(t, err, `unknown resolution "2h"; must be raw, 5m, 1h, exact or auto`)
}
