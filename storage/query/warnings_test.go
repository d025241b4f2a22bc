package query

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
)

// TestWarningsAreBounded checks that a query with more gaps than it reports individually reports a single additional
// warning for the other gaps.
func TestWarningsAreBounded(t *testing.T) {
	var told []error
	r := rowReader{told: map[string]bool{}, warn: func(err error) { told = append(told, err) }}
	for range 2 {
		for i := range 2 * maxReportedGaps {
			r.reportGap(&damage.DamagedRowsError{
				Table: engine.Catalog, Tenant: "bob", Metric: fmt.Sprint(i), Err: engine.ErrCorrupt,
			})
		}
	}
	require.Len(t, told, maxReportedGaps+1)
	require.NotContains(t, told[maxReportedGaps].Error(), "metric", "anything may be missing")
}
