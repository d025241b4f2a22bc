package storage

import (
	"context"
	"strconv"
)

// round executes one round of the sealing loop.
func (r *protocolRun) round(ctx context.Context) {
	var settled []Work
	for p := range r.store.period.Partitions() {
		staged, err := r.store.Staged(ctx, p, protocolSettle.Milliseconds())
		if err != nil {
			r.tolerate("listing work", err)
			continue
		}
		for _, w := range staged {
			settled = append(settled, w.Work)
		}
	}
	r.store.sealPasses(settled, func(works []Work) {
		_, err := r.store.SealTogether(ctx, works)
		r.tolerate("sealing", err)
	})
	for p := range r.store.period.Partitions() {
		r.tolerate("unlisting", r.store.UnlistSlots(ctx, p))
	}
	r.store.ReleaseSeries()
	_, err := r.store.Expire(ctx)
	r.tolerate("deleting windows", err)
}

func (r *protocolRun) sealOne(partition, nth string) error {
	p, err := strconv.Atoi(partition)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(nth)
	if err != nil {
		return err
	}
	ctx := context.Background()
	work, err := r.store.WaitingWork(ctx, p%protocolPartitions)
	if err != nil {
		r.tolerate("listing work", err)
		return nil
	}
	for _, w := range work {
		empty, err := r.store.hasNothing(ctx, w)
		if err != nil {
			r.tolerate("listing work", err)
			return nil
		}
		if empty {
			continue
		}
		if n--; n < 0 {
			_, err := r.store.Seal(ctx, w)
			r.tolerate("sealing", err)
			return nil
		}
	}
	return nil
}
