package check

import (
	"cmp"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// These constants weigh the work of a check, as engine.WorkMeter counts it. Rows take more time per byte than files,
// because they are decoded and rollups are recomputed.
const (
	// fileShare is the number of bytes of files that take as much time as one byte of rows.
	fileShare = 8
	// defaultDayWork is the work for a day of 1h rollups, if the engine can't measure the size of rows. For finer rows
	// it is multiplied by relativeRows.
	defaultDayWork = 1 << 20
)

// relativeRows is the approximate work for rows of a resolution, relative to 1h rollups.
var relativeRows = map[rollup.Resolution]int64{rollup.Raw: 8, rollup.FiveMinutes: 3, rollup.OneHour: 1}

// windowWork is a window with the work needed to check it.
type windowWork struct{ window, work int64 }

// plan returns the windows of a tenant with the work for each. Rows of 5m windows are counted several times, because
// they are read again to be compared with the rows of raw and 1h windows.
func (c *checker) plan(tenant string, windows []int64) ([]windowWork, error) {
	list := make([]windowWork, len(windows))
	var again []int // 5m windows
	for i, w := range windows {
		rows, err := c.rowsOf(tenant, w)
		if err != nil {
			return nil, err
		}
		list[i] = windowWork{w, rows}
		if format.ResolutionOf(w) == rollup.FiveMinutes {
			again = append(again, i)
		}
	}
	rows := make(map[int]int64, len(again))
	for _, i := range again {
		rows[i] = list[i].work
	}
	for i := range list {
		if format.ResolutionOf(list[i].window) == rollup.FiveMinutes {
			continue
		}
		startMS, endMS := c.env.Period.WindowSpan(list[i].window)
		for _, k := range again {
			fromMS, toMS := c.env.Period.WindowSpan(list[k].window)
			if overlap := min(endMS, toMS) - max(startMS, fromMS); overlap > 0 {
				list[i].work += int64(float64(rows[k]) * float64(overlap) / float64(toMS-fromMS))
			}
		}
	}
	return list, nil
}

// rowsOf estimates the size of the rows of a window, in bytes. It returns 0 if progress isn't measured.
func (c *checker) rowsOf(tenant string, window int64) (int64, error) {
	if engine.MeterOf(c.ctx) == nil {
		return 0, nil
	}
	res := format.ResolutionOf(window)
	u, ok := engine.As[engine.Measured](c.env.Engine)
	if !ok {
		startMS, endMS := c.env.Period.WindowSpan(window)
		return max(1, relativeRows[res]*defaultDayWork*(endMS-startMS)/format.DayMS), nil
	}
	total := int64(1)
	for class := range c.env.Classes() {
		for _, t := range []*engine.Table{format.TableOf(res), format.PagesOf(res)} {
			n, err := u.Usage(c.ctx, t, engine.Key{engine.Int(window), engine.Int(class), engine.Text(tenant)})
			if c.ctx.Err() != nil {
				return 0, c.ctx.Err()
			}
			if err == nil { // Damage is reported when the rows are read.
				total += int64(n)
			}
		}
	}
	return total, nil
}

// progressWithin returns a function that reports progress within the work of a window, given the number of parts that
// are done.
func (c *checker) progressWithin(work int64) func(done, all int) {
	added := int64(0)
	return func(done, all int) {
		now := work * int64(done) / int64(cmp.Or(all, 1))
		engine.MeterOf(c.ctx).Add(now - added)
		added = now
	}
}

// filesWork returns the work needed to verify the engine's files.
func (c *checker) filesWork() int64 {
	if _, ok := engine.As[verifier](c.env.Engine); !ok {
		return 0
	}
	if e, ok := engine.As[interface{ DiskUsage() uint64 }](c.env.Engine); ok {
		return int64(e.DiskUsage()) / fileShare
	}
	return 0
}
