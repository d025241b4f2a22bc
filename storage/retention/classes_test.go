package retention

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesOfClassesAreBounded(t *testing.T) {
	known := make([]KnownClass, maxKnownClasses)
	for i := range known {
		known[i].Name = strings.Repeat("x", i+1)
	}
	h := ClassHistory{Classes: known}
	require.ErrorIs(t, h.addClasses([]Class{{Name: "one more"}}), ErrBadClasses)
	h.Classes = known
	require.NoError(t, h.addClasses([]Class{{Name: "xxx"}}))
	require.Equal(t, known, h.Classes)
}
