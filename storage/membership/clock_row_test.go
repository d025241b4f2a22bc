package membership

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClockRowMakesSense checks that inconsistent rows are rejected.
func TestClockRowMakesSense(t *testing.T) {
	for _, bad := range []string{
		``, `{`, `{"seen_ms":-1}`, `{"seen_ms":9223372036854775807}`, `{"seen_ms":1,"doubt":{"since_ms":2}}`,
	} {
		_, err := parseClock([]byte(bad))
		require.Error(t, err, bad)
	}
}
