package adapter

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/cassia-db/cassia/storage/tenant"
)

// Bound returns the maximum size of a tenant's request body in bytes: the smaller of most and the tenant's limit.
// explain replaces an ErrTooLarge that the tenant's limit caused by an error that names the limit; it returns other
// errors unchanged.
func Bound(l *tenant.Limiter, name string, most int64) (bound int64, explain func(error) error) {
	own := l.Of(name).RequestBytes
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

// MaxLabelText bounds the length in bytes of a label name or value from outside. The store accepts only shorter ones,
// and Prometheus' labels package panics above 16 MiB.
const MaxLabelText = 1 << 20

// CheckLabelText returns an error if the name or the value is too long for a label.
func CheckLabelText(name, value string) error {
	if n := max(len(name), len(value)); n > MaxLabelText {
		return fmt.Errorf("a label has %d bytes; the maximum is %d", n, MaxLabelText)
	}
	return nil
}
