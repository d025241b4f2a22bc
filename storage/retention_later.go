package storage

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// LaterRetention is a retention that the windows which have rows now are too short for: it counts in full from a later window on.
type LaterRetention struct {
	Tenant, Class string
	Resolution    rollup.Resolution
	// Expire is when the present window's rows expire, From the end of the last window with rows that expire too early.
	Expire, From time.Time
}

// LaterRetentions returns the retentions that were raised, or are those of new classes, and don't count in full yet.
func (s *Store) LaterRetentions(ctx context.Context) (list []LaterRetention, err error) {
	if !s.expiring {
		return nil, nil
	}
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		t, err := s.horizonsOf(ctx, tenant)
		if err != nil {
			return nil, err
		}
		for class := range s.retention.Classes() {
			for res := rollup.Raw; res <= rollup.OneHour; res++ {
				later := LaterRetention{Tenant: tenant, Class: s.retention.NameOf(class), Resolution: res}
				window := s.period.WindowAt(res, s.opts.Now().UnixMilli())
				for ; ; window++ { // Some may be fixed ahead.
					at := expiryAt{tenant, class, window}
					shared, ok, err := s.fixedExpiry(ctx, expiryAt{tenant, sharedClass, window})
					if err != nil {
						return nil, err
					}
					own, _, err := s.fixedExpiry(ctx, at)
					if err != nil {
						return nil, err
					}
					fixed := earlier(own.Expires, shared.Expires)
					if wanted := s.wantedExpiry(t, at); !ok || fixed == 0 || wanted != 0 && wanted <= fixed {
						break
					}
					if later.From.IsZero() {
						later.Expire = time.Unix(fixed, 0).UTC()
					}
					later.From = retention.Instant(s.period.WindowEnd(window))
				}
				if !later.From.IsZero() {
					list = append(list, later)
				}
			}
		}
	}
	return list, nil
}
