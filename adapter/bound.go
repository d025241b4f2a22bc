package adapter

import (
	"cmp"
	"errors"
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
