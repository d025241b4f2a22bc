package check

import (
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// checkExemplars checks a row of exemplars.
func (c *checker) checkExemplars(window int64, row engine.Row, at func(string, ...any)) {
	list, raw, err := format.DecodeRawExemplars(row.Value, nil)
	if format.RowVersion(row.Value) != row.Clustering[3].Text && !raw.Cleaned {
		at("the version doesn't match the hash of the exemplars")
	}
	if err == nil && len(list) == 0 && raw.Cleaned {
		return
	}
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%w: a row without exemplars", format.ErrMalformedExemplar)
	}
	if err != nil {
		at("%v", err)
		return
	}
	c.stats.Exemplars += len(list)
	for i, e := range list {
		if i > 0 && list[i-1].Compare(e) >= 0 {
			at("exemplars out of order")
		}
		if _, err := format.ParseExemplar(e.T, e.Data, &c.builder); err != nil {
			at("%v", err)
		}
	}
	slot := c.env.Period.SlotOf(list[0].T)
	if c.env.Period.SlotOf(list[len(list)-1].T) != slot || c.env.Period.SlotStart(slot) != row.Clustering[1].Int ||
		c.env.Period.RawWindowOfSlot(slot) != window {
		at("exemplars from %s to %s are in the wrong row", format.FormatTime(list[0].T),
			format.FormatTime(list[len(list)-1].T))
	}
}
