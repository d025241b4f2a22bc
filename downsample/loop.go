package downsample

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/panics"
)

// Loop does the scheduled work of a process. Its exported methods are safe for concurrent use.
type Loop struct {
	store  *storage.Store
	opts   Options
	mu     sync.Mutex // one round at a time
	leases *leases    // nil: all partitions belong to this process, or none
	// held is a copy of the owned partitions as of the last update of the leases. Readers use the copy because an
	// update may wait for the engine.
	held        atomic.Pointer[[]bool]
	swept       time.Time // start of the last sweep
	pacer       *pacer
	worker      *worker // the pacer's first, for tasks of a single worker
	progress    progress
	backlog     backlog
	compactions restingWindows
	uncounted   restingWindows
	metrics     metrics
	failures    atomic.Int64 // of steps in rounds
	warned      warned
}

// maxListed is the maximum number of windows of each kind that are kept in memory.
const maxListed = 8192

// New returns a loop for a store. The store must not be closed before Run returns.
func New(store *storage.Store, opts Options) (*Loop, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	l := &Loop{store: store, opts: opts, pacer: newPacer(opts.Now, opts.Share, opts.Workers)}
	l.progress = progress{partitions: make([]partition, store.Partitions()), tasks: map[string]*streak{}}
	l.worker = l.pacer.workers[0]
	l.backlog.partitions, l.backlog.most = store.Partitions, maxListed
	l.compactions.most, l.uncounted.most = maxListed, maxListed
	if opts.Shared && !opts.Idle {
		l.leases = newLeases(store, opts.Now)
	}
	l.metrics = newMetrics(l, opts.Registerer)
	return l, nil
}

// Run executes rounds until ctx is canceled. The first round starts once the store is ready.
func (l *Loop) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { panics.Repeat(ctx, "watching the work", func() { l.watch(ctx) }) })
	if err := l.store.WaitReady(ctx); err != nil {
		if ctx.Err() == nil {
			l.progress.halt(err)
			l.opts.Logger.Error("sealing is stopped, because the head could not be rebuilt",
				"err", err, "do", doRestart)
		}
		return
	}
	more := make(chan struct{}, 1)
	if l.leases != nil {
		beside.Go(func() { panics.Repeat(ctx, "keeping leases", func() { l.keepLeases(ctx, more) }) })
	}
	ticker := time.NewTicker(l.opts.Interval)
	defer ticker.Stop()
	for {
		// The panic is logged, and the next round is due later.
		_ = panics.Call("downsampling", func() error { l.Round(ctx); return nil })
		if !l.rest(ctx, ticker.C, more) {
			return
		}
	}
}

// rest waits until the next round is due or this process has acquired leases, and relieves the head in the meantime. If
// that fails, the head isn't relieved again before the next round. rest returns false when ctx is canceled.
func (l *Loop) rest(ctx context.Context, due <-chan time.Time, more <-chan struct{}) bool {
	look := time.NewTicker(reliefInterval)
	defer look.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return false
		case <-more:
			return true
		case <-due:
			return true
		case <-look.C:
			failed = failed || !l.Relieve(ctx) // after a failure, not before the next round
		}
	}
}

// keepLeases maintains the leases until ctx is canceled, and then releases them. It sends to more when this process has
// acquired leases.
func (l *Loop) keepLeases(ctx context.Context, more chan<- struct{}) {
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	for {
		gained, err := l.leases.balance(ctx)
		l.hold()
		l.recordTask(ctx, "renewing the leases", err)
		if gained {
			select {
			case more <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseInterval)
			defer cancel()
			if err := l.leases.free(last); err != nil {
				l.opts.Logger.Warn(
					"can't release the leases; other processes take them over when the heartbeats of this one stop",
					"err", err,
				)
			}
			return
		case <-ticker.C:
		}
	}
}

// owns reports whether this process does the work of a partition.
func (l *Loop) owns(partition int) bool {
	if l.leases == nil {
		return !l.opts.Idle
	}
	held := l.held.Load()
	// The list is shorter if a period with more partitions has just been added.
	return held != nil && partition < len(*held) && (*held)[partition]
}

// hold updates the copy of the owned partitions.
func (l *Loop) hold() {
	held := make([]bool, l.store.Partitions())
	for p := range l.leases.owned {
		held[p] = p < len(held)
	}
	l.held.Store(&held)
}

// owned returns the number of partitions whose work this process does.
func (l *Loop) owned() (n int) {
	for p := range l.store.Partitions() {
		if l.owns(p) {
			n++
		}
	}
	return n
}

// These remedies are shown in logs, status and alerts.
const (
	doRestart = "restart the process; if this happens again, fix the disk or cluster problem that the error names"
	doStuck   = "check the error; common causes are a full or failing disk, a cluster that doesn't respond, or " +
		"damaged rows (run cassia check)"
	doAlarm = "give the machine more CPU, or on Cassandra start more processes with --target=downsample; or stop " +
		"the servers and run cassia downsample, which works without pauses. Samples sealed too late have no raw " +
		"rows, only rollups"
	doHang = "check that the disk or the cluster responds; /debug/pprof/goroutine?debug=2 shows where the task hangs"
)

const (
	// watchInterval is the interval of checks for progress, and watchSilence the time between warnings.
	watchInterval = time.Minute
	watchSilence  = time.Hour
	// hangs is the duration above which a piece of work is reported as hanging.
	hangs = time.Hour
)

// watch logs when the work lags, hangs or has halted, until ctx is canceled. It runs in a goroutine of its own because
// the loop itself may be blocked.
func (l *Loop) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	told := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := l.opts.Now()
		for _, a := range l.alarms() {
			if at, ok := told[a.what]; ok && now.Sub(at) < watchSilence {
				continue
			}
			told[a.what] = now
			l.opts.Logger.Error(a.what, append(a.args, "do", a.do)...)
		}
	}
}

// alarm is a condition to report to the operator.
type alarm struct {
	what, do string
	args     []any
}

func (l *Loop) alarms() (list []alarm) {
	if err := l.progress.why(); err != nil {
		list = append(list, alarm{
			"sealing is stopped, because the head could not be rebuilt", doRestart, []any{"err", err},
		})
	}
	if waiting, lag := l.behind(); lag > alarmLag {
		at, w, err := l.progress.oldest()
		list = append(list,
			alarm{
				"sealing lags by more than half of the time after which late sealing loses raw samples", doAlarm,
				[]any{
					"lag", lag.Round(time.Second), "limit", alarmLag, "waiting_slots", waiting, "partition", at, "slot",
					w.Slot, "err", fmt.Sprint(err),
				},
			})
	}
	if what, took := l.pacer.longest(); took > hangs {
		list = append(list, alarm{
			"a background task hangs", doHang, []any{"work", what, "for", took.Round(time.Second)},
		})
	}
	return list
}
