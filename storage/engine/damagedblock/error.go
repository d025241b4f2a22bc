// Package damagedblock defines the error of a read that finds damage in a file of the engine. Only engines whose files
// belong to this process return it.
package damagedblock

import (
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
)

// BlockError identifies the damaged part of a file of this process. Every read of a row in the damaged part returns it.
// It wraps engine.ErrCorrupt. Engines whose files are on servers don't return it.
type BlockError struct {
	// File is the name of the file, or "" if it is unknown. Offset is the position of the block in the file, or -1 if
	// it is unknown or the damage isn't in a block.
	File   string
	Offset int64
	Err    error
}

func (e *BlockError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("%v: %v", engine.ErrCorrupt, e.Err)
	}
	return fmt.Sprintf("%v: file %s: %v", engine.ErrCorrupt, e.File, e.Err)
}

func (e *BlockError) Unwrap() []error { return []error{engine.ErrCorrupt, e.Err} }
