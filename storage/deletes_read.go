package storage

import (
	"context"

	"github.com/cassia-db/cassia/storage/format"
)

// heed finds the deletes that the request heeds, and brings the head up to date. It comes before anything is read.
func (r *request) heed(ctx context.Context) error {
	all, err := r.s.heed(ctx, r.tenant)
	if err != nil {
		return err
	}
	r.deletes = all.Where(func(d *format.Tombstone) bool { return d.Touches(r.minT-1-format.DayMS, r.maxT+format.DayMS) })
	return nil
}
