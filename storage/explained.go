package storage

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cassia-db/cassia/storage/engine"
)

// explainedError adds an explanation for operators to an error of the engine: the request that failed, the cause and
// the remedy. Its message doesn't include the message of the wrapped error, because that message names the affected
// rows. The rows may belong to other tenants: sealing writes the rows of all tenants of a slot partition together.
type explainedError struct {
	failed string
	error
}

// explainError adds a prefix, such as "storage: nothing was deleted", and the remedy to the engine's error that err
// wraps. It returns err itself if err doesn't wrap engine.ErrUnavailable.
func explainError(failed string, err error) error {
	if !errors.Is(err, engine.ErrUnavailable) {
		return err
	}
	return explainedError{failed, err}
}

func (e explainedError) Error() string {
	text := fmt.Sprintf("%s: %v", e.failed, engineError(e.error))
	for _, r := range remedies {
		if errors.Is(e.error, r.cause) {
			return text + "; " + r.remedy + ", then retry"
		}
	}
	return text
}

func (e explainedError) Unwrap() error { return e.error }

// engineError returns the innermost error in err's chain that wraps engine.ErrUnavailable and has a message of its own.
func engineError(err error) error {
	for {
		var inner []error
		switch wrapper := err.(type) { //nolint:errorlint // This walks through the chain.
		case interface{ Unwrap() error }:
			inner = []error{wrapper.Unwrap()}
		case interface{ Unwrap() []error }:
			inner = wrapper.Unwrap()
		}
		next := err
		for _, e := range inner {
			if errors.Is(e, engine.ErrUnavailable) {
				next = e
				break
			}
		}
		if next == err || next == engine.ErrUnavailable { //nolint:errorlint // It has no text of its own.
			return err
		}
		err = next
	}
}

// remedies maps errors of the file system to remedies for operators.
var remedies = []struct {
	cause  error
	remedy string
}{
	{syscall.ENOSPC, "free disk space or inodes"},
	{syscall.EDQUOT, "free disk space, or raise the quota"},
	{syscall.EMFILE, "raise the limit of open files (ulimit -n)"},
	{syscall.ENFILE, "raise the system's limit of open files (fs.file-max)"},
	{syscall.EROFS, "mount the disk for writing"},
	{syscall.EACCES, "give this process access to the data directory"},
	{syscall.EPERM, "give this process access to the data directory"},
}
