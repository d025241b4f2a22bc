package adapter

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/cassia-db/cassia/storage/tenant"
)

// Bound returns how large a tenant's body may be, bytes: most, or less where the tenant's limit is lower. explain names
// that limit in an ErrTooLarge that it is the reason of, and leaves all other errors as they are.
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

// MaxLabelText bounds the name and the value of a label, where labels are made of bytes from outside: the store takes shorter ones only, and Prometheus'
// labels panic beyond 16 MiB.
const MaxLabelText = 1 << 20

// CheckLabelText returns an error if a name or a value can't be that of a label.
func CheckLabelText(name, value string) error {
	if n := max(len(name), len(value)); n > MaxLabelText {
		return fmt.Errorf("a label has %d bytes; the maximum is %d", n, MaxLabelText)
	}
	return nil
}
