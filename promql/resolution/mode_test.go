package resolution

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModes(t *testing.T) {
	for _, m := range []Mode{modeAuto, modeExact, ModeRaw, modeFiveMinutes, ModeOneHour} {
		back, err := ParseMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, back)
	}
	m, err := ParseMode("")
	require.NoError(t, err)
	require.Equal(t, modeAuto, m)
	_, err = ParseMode("2h")
	require.ErrorIs(t, err, errUnknownMode)
	require.ErrorContains(t, err, `unknown resolution "2h"; must be raw, 5m, 1h, exact or auto`)
}
