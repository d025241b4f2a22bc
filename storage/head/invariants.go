package head

import (
	"fmt"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

// assertFrozen asserts that a frozen chunk decodes to the samples it was made of.
func assertFrozen(data []byte, want *chunk.Samples) {
	if !assertions {
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

// assertInSlot asserts that a timestamp, in milliseconds since the start of a slot, lies within a slot.
func assertInSlot(at int64) {
	if assertions && (at < 0 || at > format.MaxSlotMS) {
		panic(fmt.Sprintf("invariant: a sample %d ms after the start of its slot", at))
	}
}
