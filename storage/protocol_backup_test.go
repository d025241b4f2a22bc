package storage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// copy makes a checkpoint of the open engine in a numbered directory. It calls before(n) before its nth file operation.
// before(0) is called when Pebble may not have listed its tables yet.
func (d *pebbleDisk) copy(before func(n int)) (dir string, err error) {
	d.copies++ // Each copy has its own directory, because a power cut may restore removed files.
	dir = fmt.Sprint("copies/", d.copies)
	n := 0
	d.fs.Before(func(op, path string) {
		switch {
		case op == "stat" && path == "copies":
			before(0)
		case op != "stat" && strings.HasPrefix(path, dir):
			n++
			before(n)
		}
	})
	defer d.fs.Before(nil)
	return dir, d.eng.Checkpoint(dir)
}

// backup makes a checkpoint during other operations, opens it as a separate store, and reads everything. The checkpoint
// must contain all samples that were acknowledged before it was started, and no sample that was deleted before, or
// never sent.
func (r *protocolRun) backup(ctx context.Context) error {
	d, ok := r.disk.(*pebbleDisk)
	if !ok {
		return nil
	}
	begun, went, needs := r.model.begun(), r.model.went(), map[string]map[protocolSeries]map[int64]protocolValue{}
	for _, tenant := range []string{"ann", "bob"} {
		needs[tenant] = r.model.needs(tenant)
	}
	hooks := r.hooks
	dir, err := d.copy(func(n int) {
		if hook := hooks[protocolCall{n: n}]; hook != nil {
			delete(hooks, protocolCall{n: n})
			hook()
		}
	})
	if err != nil || r.problem != "" {
		return err
	}
	eng, err := d.openAt(dir)
	if err != nil {
		return err
	}
	s, err := Open(ctx, eng, r.opts)
	if err == nil {
		err = s.WaitReady(ctx)
	}
	for _, state := range []string{"as it was copied", "sealed"} {
		for _, tenant := range []string{"ann", "bob"} {
			if err == nil {
				err = r.judgeCopy(
					ctx, s, &openQuery{tenant: tenant, needs: needs[tenant], went: went, deletes: begun}, state,
				)
			}
		}
		if err == nil {
			err = s.SealAll(ctx)
		}
	}
	if err == nil {
		_, err = s.Check(ctx, func(problem string) { r.fail("the copy, sealed: check: %s", problem) })
	}
	if s != nil {
		if closing := s.Close(); err == nil {
			err = closing
		}
	}
	if closing := eng.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = d.fs.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("the copy: %w", err)
	}
	return nil
}

// judgeCopy compares a tenant's samples in a copy with the model. Samples that aren't acknowledged may be missing from
// the store later although the copy contains them.
func (r *protocolRun) judgeCopy(ctx context.Context, s *Store, q *openQuery, state string) error {
	q.query = query.Query{
		Tenant: q.tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Sorted: true,
		Warn: func(err error) { r.fail("the copy, %s: a warning: %v", state, err) },
	}
	before := r.now.Load()
	var err error
	if q.selected, err = s.Select(ctx, q.query); err != nil {
		return err
	}
	q.asked, q.cancel = r.visible(q.query, before, before), func() {}
	forgetful := r.model.forgetful
	r.model.forgetful = true
	defer func() { r.model.forgetful = forgetful }()
	had := r.problem
	if r.readQuery(q); r.problem != had {
		r.problem = fmt.Sprintf("the copy, %s: %s", state, r.problem)
	}
	return nil
}

// TestBackupsBesideSeals seals acknowledged samples at each of the first steps of a checkpoint. The checkpoint must
// contain the samples. A seal that is started before Pebble has listed its tables may have to wait until the tables are
// listed.
func TestBackupsBesideSeals(t *testing.T) {
	t.Parallel()
	for step := range 8 {
		r, err := newProtocolRun("store base=2026-05-01T12:00:00Z retention=0s slot=2h engine=pebble probes=false")
		require.NoError(t, err)
		r.start()
		require.NoError(t, r.line("write ann up/a@-5h=1 up/b@-3h=2 load/a@-1m=3"))
		sealed := make(chan struct{})
		r.hooks = map[protocolCall]func(){{n: step}: func() {
			go func() {
				defer close(sealed)
				r.tolerate("sealing", r.store.SealAll(context.Background()))
			}()
			select {
			case <-sealed:
			case <-time.After(20 * time.Millisecond):
				if step > 0 {
					<-sealed
				}
			}
		}}
		require.NoError(t, r.backup(t.Context()), step)
		<-sealed
		r.stop()
		require.Empty(t, r.problem, step)
	}
}
