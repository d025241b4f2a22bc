package query

import (
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
)

// maxTold bounds how many gaps a query is warned of one by one.
const maxTold = 50

// missed counts and logs rows of a scan that can't be read, and warns of them.
func (r *rowReader) missed(rows *engine.Range, d engine.Damage) {
	r.tellGap(r.env.Damage.NoteRows(rows, d))
}

// tellGap warns of each gap once.
func (r *rowReader) tellGap(e *damage.DamagedRowsError) {
	what := e.What()
	r.warnMu.Lock()
	if r.told == nil {
		r.told = map[string]bool{}
	}
	told := r.told[what] || len(r.told) > maxTold
	if !told {
		r.told[what] = true
	}
	more := len(r.told) > maxTold
	r.warnMu.Unlock()
	switch {
	case told:
	case more:
		r.tell(e.Anything())
	default:
		r.tell(e)
	}
}
