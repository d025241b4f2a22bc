package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/pebble"
)

// protocolDisk contains the data that survives a process of the protocol test.
type protocolDisk interface {
	// open opens the engine.
	open() (engine.Engine, error)
	// powerCut keeps each unsynced write with a probability of percent.
	powerCut(percent int)
}

func newProtocolDisk(kind string) (protocolDisk, error) {
	switch kind {
	case "memory":
		return &memoryDisk{inner: memory.New()}, nil
	case "pebble":
		return &pebbleDisk{fs: pebble.NewCrashableFS()}, nil
	default:
		return nil, fmt.Errorf("no engine %q", kind)
	}
}

// memoryDisk keeps its engine open, so that nothing is lost.
type memoryDisk struct{ inner engine.Engine }

type unclosed struct{ engine.Engine }

func (unclosed) Close() error { return nil }

func (e unclosed) ExpiresRows() bool {
	x, ok := e.Engine.(expirer)
	return ok && x.ExpiresRows()
}

// Version implements engine.Versioned if the engine does.
func (e unclosed) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	v, ok := e.Engine.(engine.Versioned)
	if !ok {
		return 0, false
	}
	return v.Version(t, partition)
}

func (d *memoryDisk) open() (engine.Engine, error) { return unclosed{d.inner}, nil }
func (d *memoryDisk) powerCut(int)                 {}

// pebbleDisk contains a file system that loses unsynced writes in a power cut.
type pebbleDisk struct {
	fs   *pebble.CrashableFS
	eng  *pebble.Engine // the engine that was opened last
	cuts uint64
	// opens counts how often the engine was opened, and copies counts its checkpoints.
	opens, copies int
}

func (d *pebbleDisk) open() (_ engine.Engine, err error) {
	d.opens++
	d.eng, err = d.openAt("db")
	return d.eng, err
}

func (d *pebbleDisk) openAt(dir string) (*pebble.Engine, error) {
	o := pebble.DefaultOptions()
	o.FS, o.CacheBytes, o.MemTableBytes, o.BlockBytes, o.ReserveBytes = d.fs, 1<<20, 1<<20, 4<<10, 0
	o.IngestBytes = []int{1 << 10, 1}[d.opens%2] // Few rows are sealed at a time.
	o.StageDelay = time.Millisecond              // Stage rows of sealed slots are deleted during the history.
	return pebble.Open(dir, o)
}

func (d *pebbleDisk) powerCut(percent int) {
	d.cuts++
	d.fs = d.fs.Crash(percent, rand.New(rand.NewPCG(d.cuts, 7)))
}

var (
	errDead      = errors.New("the process has ended")
	errFaultText = errors.New("a fault is fail|lose|withhold TABLE N, scan TABLE N or die before|after N")
)

// stepEngine lets a test run operations between a store's calls of its engine, and stop the process at one of the
// calls. It counts the store's calls while it is armed, but not the calls of these operations.
type stepEngine struct {
	inner *faultengine.Engine

	mu     sync.Mutex
	dead   bool
	armed  bool
	fired  bool // a fault was injected since arm
	nested int
	calls  int
	writes int
	scans  map[byte]int
	puts   map[byte]int
	faults []protocolFault
	hooks  map[protocolCall]func()
	unsure map[string]bool // stage rows whose writers don't know whether they were written
	fresh  []string        // stage rows that were put since begun was called
	// shared writes each batch of a write separately, and reads every few rows of a scan with a separate call.
	shared bool
	// opening is true until a shared store has read the retentions of the other processes, which are the last rows that
	// Open reads.
	opening atomic.Bool
	order   uint64 // the order in which the batches of a write are applied; 0: unchanged
}

// protocolCall identifies the nth call, or the nth write.
type protocolCall struct {
	write bool
	n     int
}

// protocolFault is a fault to inject at one of the calls.
type protocolFault struct {
	what  string // fail, lose, withhold: of a batch for table; scan: of table; die
	table string
	after bool // for die: after the call instead of before it
	n     int
}

func parseFault(text string) (f protocolFault, err error) {
	words := strings.Fields(text)
	if len(words) != 3 {
		return f, errFaultText
	}
	f.what = words[0]
	if f.n, err = strconv.Atoi(words[2]); err != nil || f.n < 1 {
		return f, errFaultText
	}
	switch f.what {
	case "die":
		f.after = words[1] == "after"
	case "fail", "lose", "withhold", "scan":
		f.table = words[1]
	default:
		return f, errFaultText
	}
	return f, nil
}

func newStepEngine(inner engine.Engine, unsure map[string]bool) *stepEngine {
	e := &stepEngine{unsure: unsure}
	e.inner = faultengine.Wrap(inner, e.rule)
	return e
}

// arm starts counting calls. The engine then injects faults at some calls, and calls hooks at others.
func (e *stepEngine) arm(faults []protocolFault, hooks map[protocolCall]func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.armed, e.fired, e.calls, e.writes = true, false, 0, 0
	e.scans, e.puts = map[byte]int{}, map[byte]int{}
	e.faults, e.hooks = faults, hooks
}

// excuse makes the run tolerate errors from now on, as after an injected fault.
func (e *stepEngine) excuse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fired = true
}

// disarm stops counting calls, and reports whether a fault was injected since arm.
func (e *stepEngine) disarm() (fired bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.armed, e.faults, e.hooks, e.order = false, nil, nil, 0
	return e.fired
}

func (e *stepEngine) faulty() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fired || e.dead
}

func (e *stepEngine) kill() {
	e.mu.Lock()
	e.dead = true
	e.mu.Unlock()
}

// busy reports whether a call of the engine is running a hook.
func (e *stepEngine) busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nested > 0
}

func (e *stepEngine) isDead() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dead
}

// rule is the rule of the wrapped faultengine.
func (e *stepEngine) rule(op faultengine.Op) faultengine.Action {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.armed || op.Kind != faultengine.Write && op.Kind != faultengine.Scan {
		return faultengine.Pass()
	}
	count := e.puts
	if op.Kind == faultengine.Scan {
		count = e.scans
	}
	count[op.Table.ID]++
	for _, f := range e.faults {
		if (f.what == "scan") != (op.Kind == faultengine.Scan) || f.table != op.Table.Name ||
			f.n != count[op.Table.ID] {
			continue
		}
		e.fired = true
		switch f.what {
		case "fail", "scan":
			return faultengine.Fail(nil)
		case "lose":
			return faultengine.Lose(nil)
		case "withhold":
			return faultengine.Withhold(nil)
		}
	}
	return faultengine.Pass()
}

// openingKey marks the context with which a store is opened. Hooks need an open store, so they can't run within the
// calls of Open.
type openingKey struct{}

// isOpening reports whether a call is made by Open itself and not by the background work that it starts, whose context
// can be canceled.
func isOpening(ctx context.Context) bool {
	return ctx.Value(openingKey{}) != nil && ctx.Done() == nil
}

// enter is called at the start of every call of the engine. It counts the call, and runs the hook of the call. It
// returns errDead if the process has stopped. last is true if the process stops after this call.
func (e *stepEngine) enter(write bool) (last bool, err error) {
	e.mu.Lock()
	var hook func()
	if e.armed && e.nested == 0 && !e.dead {
		e.calls++
		at := protocolCall{n: e.calls}
		if write {
			e.writes++
			if e.hooks[at] == nil {
				at = protocolCall{write: true, n: e.writes}
			}
		}
		hook = e.hooks[at]
		delete(e.hooks, at)
		for _, f := range e.faults {
			if write && f.what == "die" && f.n == e.writes {
				e.fired = true
				if f.after {
					last = true
				} else {
					e.dead = true
				}
			}
		}
	}
	if e.dead {
		e.mu.Unlock()
		return false, errDead
	}
	if hook == nil {
		e.mu.Unlock()
		return last, nil
	}
	e.nested++
	e.mu.Unlock()
	hook()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nested--
	if e.dead {
		return false, errDead
	}
	return last, nil
}

// Version implements engine.Versioned. A shared engine has no versions, because other processes also write to it.
func (e *stepEngine) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	if e.shared {
		return 0, false
	}
	return e.inner.Version(t, partition)
}

func (e *stepEngine) Write(ctx context.Context, batches []engine.Batch) (first error) {
	if !e.shared {
		return e.write(ctx, batches)
	}
	e.mu.Lock()
	if batches = slices.Clone(batches); e.order != 0 {
		rand.New(rand.NewPCG(e.order, 3)).Shuffle(
			len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] },
		)
	}
	e.mu.Unlock()
	for _, b := range batches {
		if err := e.write(ctx, []engine.Batch{b}); first == nil {
			first = err
		}
	}
	return first
}

func (e *stepEngine) write(ctx context.Context, batches []engine.Batch) error {
	last, err := e.enter(true)
	if err == nil {
		err = e.inner.Write(ctx, batches)
	}
	if last {
		e.kill()
		err = errDead
	}
	if err == nil {
		e.stays(batches)
	} else {
		e.mu.Lock()
		for _, b := range batches {
			for _, m := range b.Mutations {
				if m.Op == engine.Put {
					e.unsure[rowText(b.Table, m.Clustering)] = true
				}
			}
		}
		e.mu.Unlock()
	}
	return err
}

// stays records the staged rows that a write has put.
func (e *stepEngine) stays(batches []engine.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range batches {
		for _, m := range b.Mutations {
			if m.Op == engine.Put && b.Table == engine.Stage {
				e.fresh = append(e.fresh, rowText(b.Table, m.Clustering))
			}
		}
	}
}

// begun records that requests start. refused records that one of them failed: rows that it has put may still exist,
// such as a blob whose slot became old before it was listed.
func (e *stepEngine) begun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fresh = nil
}

func (e *stepEngine) refused() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, row := range e.fresh {
		e.unsure[row] = true
	}
}

// rowText identifies a staged row by its writer and number.
func rowText(t *engine.Table, k engine.Key) string {
	switch t {
	case engine.Stage:
		return fmt.Sprintf("stage %x %d", k[0].Text, k[1].Int)
	default:
		return t.Name
	}
}

func (e *stepEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		if r.Table == engine.Store || !e.shared && isOpening(ctx) { // Not counted, like CompareAndSet.
			if e.isDead() {
				yield(engine.Row{}, errDead)
				return
			}
			e.inner.Scan(ctx, r)(yield)
			return
		}
		if _, err := e.enter(false); err != nil {
			yield(engine.Row{}, err)
			return
		}
		if !e.shared || r.Limit > 0 {
			e.inner.Scan(ctx, r)(yield)
			return
		}
		e.pages(ctx, r, yield)
		// The list of advertised states was read.
		if r.Table == engine.Processes && engine.Compare(r.Partition, engine.Key{engine.Int(2)}) == 0 {
			e.opening.Store(false)
		}
	}
}

// pages scans a few rows at a time, so that other processes may write in between.
func (e *stepEngine) pages(ctx context.Context, r engine.Range, yield func(engine.Row, error) bool) {
	const page = 3
	var last engine.Key
	for r.Limit = page; ; r.From = last {
		seen := 0
		for row, err := range e.inner.Scan(ctx, r) {
			if seen++; err == nil && last != nil && engine.Compare(row.Clustering, last) == 0 {
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
			last = row.Clustering
		}
		if seen < page {
			return
		}
		if _, err := e.enter(false); err != nil {
			yield(engine.Row{}, err)
			return
		}
	}
}

func (e *stepEngine) Partitions(
	ctx context.Context, t *engine.Table, prefix engine.Key, damaged func(engine.Damage),
) iter.Seq2[engine.Key, error] {
	return func(yield func(engine.Key, error) bool) {
		if _, err := e.enter(false); err != nil {
			yield(nil, err)
			return
		}
		e.inner.Partitions(ctx, t, prefix, damaged)(yield)
	}
}

func (e *stepEngine) Drop(ctx context.Context, t *engine.Table, prefix engine.Key) error {
	if _, err := e.enter(false); err != nil {
		return err
	}
	return e.inner.Drop(ctx, t, prefix)
}

func (e *stepEngine) CompareAndSet(
	ctx context.Context, t *engine.Table, partition, clustering engine.Key, old, value []byte,
) (bool, []byte, error) {
	if e.isDead() { // The call isn't counted: it runs no hook and gets no fault.
		return false, nil, errDead
	}
	return e.inner.CompareAndSet(ctx, t, partition, clustering, old, value)
}

// probingSteps is a stepEngine that can probe multiple partitions at once. Each partition is a call of its own.
type probingSteps struct{ *stepEngine }

// Occupied implements engine.Prober.
func (e probingSteps) Occupied(ctx context.Context, t *engine.Table, partitions []engine.Key) ([]bool, error) {
	return faultengine.Occupied(ctx, e, t, partitions)
}

// ScanSeveral implements engine.SeveralScanner.
func (e probingSteps) ScanSeveral(
	ctx context.Context, r engine.Range, partitions []engine.Key,
) iter.Seq2[engine.RowOf, error] {
	return faultengine.ScanSeveral(ctx, e, r, partitions)
}

func (e *stepEngine) Close() error { return e.inner.Close() }
