package storage

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestSealBesideRollupsOfADelete seals the first samples of a series in a slot or in a day, while the slot's rollups
// are recomputed because of a delete. The seal runs after the recomputation has listed the chunks and before it reads
// the stored rollup. The rollups must include the samples of the seal.
func TestSealBesideRollupsOfADelete(t *testing.T) {
	for table, earlier := range map[string]time.Duration{engine.R5m.Name: 0, engine.R1h.Name: -24 * time.Hour} {
		t.Run(table, func(t *testing.T) {
			var hook func()
			ts := openTestStore(t, func(o *Options) { o.seams.still = true })
			ts.close()
			ts.memory = unclosed{hooked{memory.New(), table, &hook}}
			ts.open()
			period := ts.period.All()[0]
			period.RawWindowMS = 4 * format.DayMS
			_, err := ts.SetPeriod(t.Context(), period, ts.now.Add(5*24*time.Hour))
			require.NoError(t, err)
			ts.now = ts.now.Add(20 * 24 * time.Hour)
			ts.opts.Slot = 0
			ts.reopen()
			window := ts.period.RawWindowEnd(ts.period.RawWindowAt(ts.now.Add(-5 * 24 * time.Hour).UnixMilli()))
			day := time.UnixMilli(window).Add(24 * time.Hour)
			ts.write("t", jobLabels("web"), every(day.Add(earlier+time.Minute), time.Minute, 60)...)
			ts.write("t", jobLabels("other"), every(day.Add(4*time.Hour+time.Minute), time.Minute, 60)...)
			require.NoError(t, ts.SealAll(t.Context()))
			require.NoError(t, ts.Delete(
				t.Context(), "t", day.Add(3*time.Hour).UnixMilli(), day.Add(7*time.Hour).UnixMilli(),
				equal("job", "web"),
			))
			ts.write("t", jobLabels("web"), every(day.Add(4*time.Hour+time.Minute), time.Minute, 60)...)
			hook = func() { require.NoError(t, ts.SealAll(t.Context())) }
			require.NoError(t, ts.WorkOffDeletes(t.Context(), "t"))
			require.Nil(t, hook, "it was sealed meanwhile")
			require.Len(t, ts.all("t")[jobLabels("web").String()], 120)
			for _, res := range rollup.Resolutions {
				require.Equal(t, map[string]int{"web": 120, "other": 60}, ts.bucketsOf("t", res), "%s", res)
			}
			ts.check()
		})
	}
}

// hooked calls hook before the first scan of a table, or of its pages.
type hooked struct {
	engine.Engine
	table string
	hook  *func()
}

func (e hooked) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if h := *e.hook; h != nil && strings.HasPrefix(r.Table.Name, e.table) {
		*e.hook = nil
		h()
	}
	return e.Engine.Scan(ctx, r)
}
