package storage

import "context"

// heed finds the deletes that the request heeds, and brings the head up to date. It comes before anything is read.
func (r *request) heed(ctx context.Context) error {
	all, err := r.s.heed(ctx, r.tenant)
	if err != nil {
		return err
	}
	r.deletes = all.where(func(d *deletion) bool { return d.touches(r.minT-1-dayMS, r.maxT+dayMS) })
	return nil
}
