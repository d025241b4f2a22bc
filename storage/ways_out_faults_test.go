package storage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// atomicDuration is a duration that background work of a step, such as a canceled delete, may read while the next step
// sets it.
type atomicDuration struct{ ns atomic.Int64 }

func (d *atomicDuration) get() time.Duration  { return time.Duration(d.ns.Load()) }
func (d *atomicDuration) set(v time.Duration) { d.ns.Store(int64(v)) }

// waysFaults injects faults into the calls of a step. It also counts calls that background work of an earlier step
// makes.
type waysFaults struct {
	mu    sync.Mutex
	fault *protocolFault
	// cancelAt is the number of the call at which the context of the next delete is canceled. 0 means never.
	cancelAt int
	cancel   context.CancelFunc
	calls    int
}

func (f *waysFaults) set(fault *protocolFault, cancelAt int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.cancelAt = fault, cancelAt
}

// drawn reports whether a fault is set. The fault may have been injected already.
func (f *waysFaults) drawn() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault != nil
}

// withholds reports whether the fault that is set withholds a write to a table.
func (f *waysFaults) withholds(t *engine.Table) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault != nil && f.fault.what == "withhold" && f.fault.table == t.Name
}

// deleting makes the call with number cancelAt, counted from now, call cancel.
func (f *waysFaults) deleting(cancel context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls, f.cancel = 0, nil; f.cancelAt > 0 {
		f.cancel = cancel
	}
}

// act counts a call of the engine, and returns the fault to inject in it. At call number cancelAt it cancels the
// context of the delete.
func (f *waysFaults) act(op faultengine.Op) faultengine.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.cancel != nil && f.calls == f.cancelAt {
		f.cancel()
	}
	if f.fault == nil || op.Kind != faultengine.Write || op.Table.Name != f.fault.table {
		return faultengine.Pass()
	}
	if f.fault.n--; f.fault.n != 0 {
		return faultengine.Pass()
	}
	switch f.fault.what {
	case "fail":
		return faultengine.Fail(nil)
	case "lose":
		return faultengine.Lose(nil)
	default:
		return faultengine.Withhold(nil)
	}
}
