package membership

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a row can't say is refused.
func TestClockRowMakesSense(t *testing.T) {
	for _, bad := range []string{``, `{`, `{"seen_ms":-1}`, `{"seen_ms":9223372036854775807}`, `{"seen_ms":1,"doubt":{"since_ms":2}}`,
		`{"spans":[{"from_ms":2,"to_ms":1}]}`, `{"spans":[{"from_ms":0,"to_ms":5},{"from_ms":5,"to_ms":6}]}`, `{"spans":[{"from_ms":0,"to_ms":9007199254740993}]}`} {
		_, err := parseClock([]byte(bad))
		require.Error(t, err, bad)
	}
}
