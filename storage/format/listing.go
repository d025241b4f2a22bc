package format

import (
	"encoding/binary"
	"fmt"
	"math"
)

// ListingState is whether a window is listed. At one generation the greatest wins.
type ListingState byte

const (
	// ListedFirst is what releases wrote that deleted the row with the timestamp that it was written with, 1. It has no
	// generation.
	ListedFirst ListingState = 1
	Unlisted    ListingState = 2
	Closing     ListingState = 3
	Listed      ListingState = 4
)

// firstGeneration is that of a window that has no row: above the deletes of earlier releases.
const firstGeneration = 2

// Listing is a row of table windows:
//
//	+--------+------------+
//	| state  | generation |
//	| 1 byte | uvarint    |
//	+--------+------------+
type Listing struct {
	State      ListingState
	Generation int64
}

// ParseListing reads a row. One that can't be read counts as listed: its rows are looked for.
func ParseListing(value []byte) Listing {
	if len(value) == 1 && ListingState(value[0]) == ListedFirst {
		return Listing{ListedFirst, 1}
	}
	if len(value) > 1 {
		n, w := binary.Uvarint(value[1:])
		state := ListingState(value[0])
		if w == len(value)-1 && n >= firstGeneration && n < math.MaxInt64/2 && state >= Unlisted && state <= Listed {
			return Listing{state, int64(n)}
		}
	}
	return Listing{Closing, 1}
}

// AppendListing returns the row.
func AppendListing(l Listing) []byte {
	return binary.AppendUvarint([]byte{byte(l.State)}, uint64(l.Generation))
}

// Counts reports whether the window may have rows.
func (l Listing) Counts() bool { return l.State != Unlisted && l.State != 0 }

// Stands reports whether the window is listed and nobody is about to unlist it. An earlier release, which may run beside this
// one, would delete a row of the first generation.
func (l Listing) Stands() bool { return l.State == Listed }

func (l Listing) String() string {
	switch l.State {
	case Unlisted:
		return fmt.Sprintf("not listed, generation %d", l.Generation)
	case Closing:
		return fmt.Sprintf("listed, closing, generation %d", l.Generation)
	default:
		return fmt.Sprintf("listed, generation %d", l.Generation)
	}
}

// Next returns the row that follows with another state.
func (l Listing) Next(state ListingState) Listing {
	return Listing{state, max(l.Generation+1, firstGeneration)}
}
