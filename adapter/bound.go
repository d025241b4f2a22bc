package adapter

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/cassia-db/cassia/storage/tenant"
)

// BodyLimit returns the maximum size of a tenant's request body in bytes: the tenant's limit, or the parameter most if
// that is smaller. If the tenant's limit is the smaller one, explain turns an ErrTooLarge into an error that names this
// limit. explain returns other errors unchanged.
func BodyLimit(l *tenant.Limiter, name string, most int64) (bound int64, explain func(error) error) {
	own := l.LimitsOf(name).RequestBytes
	if own <= 0 || own >= most {
		return most, func(err error) error { return err }
	}
	return own, func(err error) error {
		if !errors.Is(err, ErrTooLarge) {
			return err
		}
		return cmp.Or(l.CheckRequest(name, math.MaxInt64), err)
	}
}

// maxLabelText is the maximum length in bytes of a label name or value that importers accept. The store's limits are
// lower, but are checked only after labels have been built, and Prometheus' labels package panics above 16 MiB.
const maxLabelText = 1 << 20

// CheckLabelText returns an error if the name or the value is too long for a label.
func CheckLabelText(name, value string) error {
	if n := max(len(name), len(value)); n > maxLabelText {
		return fmt.Errorf("a label has %d bytes; the maximum is %d", n, maxLabelText)
	}
	return nil
}
