package format

import (
	"encoding/binary"
	"fmt"
	"math"
)

// ListingState is the state of a window's listing. Among rows with the same generation, the highest state wins.
type ListingState byte

const (
	Unlisted ListingState = 1
	Closing  ListingState = 2
	Listed   ListingState = 3
)

// Listing is the value of a row of table windows. The first generation is 1:
//
//	+--------+------------+
//	| state  | generation |
//	| 1 byte | uvarint    |
//	+--------+------------+
type Listing struct {
	State      ListingState
	Generation int64
}

// ParseListing parses a row. An invalid row counts as listed, so that the window's rows are read.
func ParseListing(value []byte) Listing {
	if len(value) > 1 {
		n, w := binary.Uvarint(value[1:])
		state := ListingState(value[0])
		if w == len(value)-1 && n >= 1 && n < math.MaxInt64/2 && state >= Unlisted && state <= Listed {
			return Listing{state, int64(n)}
		}
	}
	return Listing{Closing, 1}
}

// AppendListing returns the value of a row.
func AppendListing(l Listing) []byte {
	return binary.AppendUvarint([]byte{byte(l.State)}, uint64(l.Generation))
}

// MayHaveRows reports whether the window may have rows.
func (l Listing) MayHaveRows() bool { return l.State != Unlisted && l.State != 0 }

// IsListed reports whether the window is listed and no process is about to unlist it.
func (l Listing) IsListed() bool { return l.State == Listed }

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

// WithState returns the listing that replaces l: it has another state and the next generation.
func (l Listing) WithState(state ListingState) Listing {
	return Listing{state, l.Generation + 1}
}
