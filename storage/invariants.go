package storage

import (
	"fmt"

	"github.com/cassia-db/cassia/storage/chunk"
)

// assertFrozen makes sure that a frozen chunk gives back what it was made of.
func assertFrozen(data []byte, want *chunk.Samples) {
	if !invariants {
		return
	}
	var got chunk.Samples
	if err := chunk.Decode(data, &got); err != nil {
		panic(fmt.Sprintf("invariant: a frozen chunk can't be read: %v", err))
	}
	if got.Len() != want.Len() || !got.Covers(want) {
		panic("invariant: a frozen chunk gives back other samples")
	}
}

// assertSealed makes sure that the sealed rows hold all that the stage rows held, before these are deleted.
// Rows that can't be read right now prove nothing.
func (x *sealer) assertSealed(gens []*generation) {
	if !invariants {
		return
	}
	for tenant, list := range collect(gens) {
		fresh, _, _ := x.byAge(tenant, list)
		for _, c := range fresh {
			var samples chunk.Samples
			for _, st := range c.strands {
				if err := st.read(-maxTime, maxTime, &samples); err != nil {
					return
				}
			}
			var sealed chunk.Samples
			if x.readSealed(c.series, &sealed, new(exempt)) != nil {
				return
			}
			sealed.Normalize()
			// Where sealed samples won against these, they still do.
			var both chunk.Samples
			both.AppendAll(&sealed)
			both.AppendAll(&samples)
			both.Normalize()
			if !sealed.Covers(&both) {
				panic(fmt.Sprintf("invariant: slot %d of %s of tenant %q was sealed and isn't whole", x.work.Slot, c.series.labels, tenant))
			}
		}
	}
}
