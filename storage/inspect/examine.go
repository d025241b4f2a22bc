package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/starts"
)

const (
	// examineWorkers is the number of concurrent reads.
	examineWorkers = 16
	// verifiedBytes is the max size of blobs whose checksums ExamineStore verifies.
	verifiedBytes = 64 << 20
	// maxDamagedNamed is the max number of damaged rows that ExamineStore lists; it counts all.
	maxDamagedNamed = 20
	// leftoverWindows and leftoverTenants limit the search for rows of expired windows that aren't listed.
	leftoverWindows = 60
	leftoverTenants = 20
	// beatSlack is the max age that a heartbeat appears to have right after it was written.
	beatSlack = membership.HeartbeatInterval + time.Second
)

// ExamineOptions configure ExamineStore.
type ExamineOptions struct {
	// Retention is the retention of raw samples, Retention5m and Retention1h the retention of rollups. 0 means forever.
	Retention, Retention5m, Retention1h time.Duration
	// TenantRetention and Classes are as in storage.Options.
	TenantRetention map[string]retention.Durations
	Classes         []retention.Class
	// Listen is called between two reads of the processes' rows, and must wait for at least two heartbeats. If it is
	// nil, the rows are read once, and no process is known to be alive.
	Listen func(ctx context.Context) error
	// Files makes ExamineStore read and verify all of the engine's files, if the files belong to this process.
	// Otherwise ExamineStore reports only the damage that reads have found since the engine was opened.
	Files bool
	// Now is the clock.
	Now func() time.Time
}

// Condition is the state of a store, read without opening it.
type Condition struct {
	Created time.Time
	// RestoredFrom is the name of the backup from which the store was restored, or "" if it wasn't restored.
	RestoredFrom string
	Periods      []format.Period
	// Tenants is the number of tenants with rows.
	Tenants   int
	Processes []ProcessSeen
	// Keeps describes the retentions of the processes if they differ. The longest retention applies.
	Keeps []string
	// Leases are the leases by partition.
	Leases []membership.Lease
	// Waiting are the slots with unsealed samples, the oldest first.
	Waiting []WaitingSlot
	// ClockSeen is the time at which the observed uptime was last written, or zero. ClockDoubted is true if the clock
	// was untrusted at that time, or would be now: see design/clocks.md. On a cluster neither is set.
	ClockSeen    time.Time
	ClockDoubted bool
	// Expired are the windows past their retention and its grace period that still exist.
	Expired []ExpiredWindow
	// Hidden are retention boundaries of rows that are hidden because the retention was lowered, and would be visible
	// again if it were raised.
	Hidden []retention.Change
	// ClassesFrom is the time at which the most recently configured retention classes take effect. It is zero if they
	// are already in effect.
	ClassesFrom time.Time
	// Later are retentions that take full effect only with later windows.
	Later []retention.LaterRetention
	// Deltas are the tenants that have sent deltas.
	Deltas []starts.DeltaTenant
	// DroppedAhead is the end of the time range of raw samples that were deleted for some tenant because of a fast
	// clock, or zero if there are none.
	DroppedAhead time.Time
	// Verified is the number of staged blobs that were read. Unverified is true if there are more.
	Verified   int
	Unverified bool
	// DamagedRows is the number of rows that can't be read. Damaged has the first of them, with the reason.
	DamagedRows int
	Damaged     []DamagedRow
	// Files is the number of the engine's files that were verified, FileBytes their size. Both are 0 if servers keep
	// the files.
	Files     int
	FileBytes int64
	// Unreadable is the number of parts of files, or rows, that can't be read at all. Problems describes the first of
	// them.
	Unreadable int
	Problems   []string
}

// addUnreadable counts a problem, and adds its description to Problems unless Problems already has maxDamagedNamed
// descriptions.
func (c *Condition) addUnreadable(problem string) {
	c.Unreadable++
	if len(c.Problems) < maxDamagedNamed {
		c.Problems = append(c.Problems, problem)
	}
}

// continueAfter records err if it is damage that ended a part of the examination, and returns nil, so that the
// examination continues with the next part. It returns other errors.
func (c *Condition) continueAfter(err error) error {
	if !errors.Is(err, engine.ErrCorrupt) {
		return err
	}
	c.addUnreadable(err.Error())
	return nil
}

// ProcessSeen is a process that has written its row within the last hours.
type ProcessSeen struct {
	membership.Process
	// Alive is true if the process wrote a heartbeat between the two reads.
	Alive bool
	// Quiet is the examining process's current time minus the time of the last heartbeat, which was written with the
	// clock of the process that was seen.
	Quiet time.Duration
	// Ahead is the min difference between the clock of the process that was seen and the clock of the examining
	// process. It is negative if the clock of the process that was seen is slow, and 0 if that process isn't alive.
	Ahead time.Duration
}

// WaitingSlot is a slot of a partition with unsealed samples.
type WaitingSlot struct {
	Partition int
	Slot      int64
	// End is the end of the slot. Since is the earliest time at which its samples could have been sealed: its end, or,
	// for late samples, the hour of their arrival.
	End, Since time.Time
	// Blobs is the number of blobs that were read, and Damaged the number of damaged ones among them. Both are 0 if the
	// slot hasn't ended.
	Blobs, Damaged int
}

// OnlyDamaged reports whether all blobs of the slot are damaged, so that nothing can be sealed.
func (w *WaitingSlot) OnlyDamaged() bool { return w.Blobs > 0 && w.Blobs == w.Damaged }

// ExpiredWindow is a window past its retention and its grace period.
type ExpiredWindow struct {
	Tenant string
	Window int64
	// Until is the time at which its rows should have been deleted.
	Until time.Time
	// Listed is true if the window hasn't been dropped, Rows if it still has rows.
	Listed, Rows bool
}

// DamagedRow is a row of the staging log that can't be read.
type DamagedRow struct {
	Slot int64
	// End is the end of the slot.
	End       time.Time
	Partition int
	// Writer is the writer in hexadecimal.
	Writer string
	Seq    int64
	Err    error
}

func (d *DamagedRow) String() string {
	return fmt.Sprintf("stage: slot %d, until %s, partition %d, writer %s, seq %d: %v", d.Slot,
		format.FormatTime(d.End.UnixMilli()), d.Partition, d.Writer, d.Seq, d.Err)
}

// ExamineStore examines a store in the engine without opening it: it writes nothing, doesn't register as a process, and
// builds no head. It reads some rows of each slot that may be waiting, the blobs of ended slots up to verifiedBytes,
// and the small tables. Like storage.Open, it returns storage.ErrNoStore, and errors for other row formats.
func ExamineStore(ctx context.Context, eng engine.Engine, o ExamineOptions) (*Condition, error) {
	opts := storage.DefaultOptions()
	opts.Retention, opts.Retention5m, opts.Retention1h = o.Retention, o.Retention5m, o.Retention1h
	opts.TenantRetention, opts.Classes, opts.Now = o.TenantRetention, o.Classes, o.Now
	v, err := storage.OpenView(ctx, eng, opts)
	if err != nil {
		return nil, err
	}
	x := &examiner{View: v, now: o.Now, c: &Condition{Created: v.Created(), RestoredFrom: v.RestoredFrom(),
		Periods: slices.Clone(v.Period().All())}}
	before, err := v.Processes(ctx)
	if err := x.c.continueAfter(err); err != nil {
		return nil, err
	}
	x.c.Leases, err = v.Leases(ctx)
	if err := x.c.continueAfter(err); err != nil {
		return nil, err
	}
	files := x.examineKnownFiles
	if o.Files {
		files = x.examineFiles
	}
	for _, look := range []func(context.Context) error{
		x.examineRetentions, x.examineClock, x.examineWaiting, x.verifySlots,
		x.examineExpired, x.examineHidden, files} {
		if err := x.c.continueAfter(look(ctx)); err != nil {
			return nil, err
		}
	}
	return x.c, x.examineProcesses(ctx, before, o.Listen)
}

// examineFiles verifies the engine's files, if they belong to this process.
func (x *examiner) examineFiles(ctx context.Context) (err error) {
	if v, ok := engine.As[interface {
		VerifyFiles(ctx context.Context, report func(problem error)) (files int, bytes int64, err error)
	}](x.Engine()); ok {
		x.c.Files, x.c.FileBytes, err = v.VerifyFiles(ctx, func(problem error) { x.c.addUnreadable(problem.Error()) })
	}
	return err
}

// examineKnownFiles counts the files that the engine has found damaged.
func (x *examiner) examineKnownFiles(context.Context) error {
	if e, ok := engine.As[interface{ DamagedFiles() []string }](x.Engine()); ok {
		for _, problem := range e.DamagedFiles() {
			x.c.addUnreadable(problem)
		}
	}
	return nil
}

// examineClock reads the observed uptime of a store on one machine.
func (x *examiner) examineClock(ctx context.Context) (err error) {
	x.c.ClockSeen, x.c.ClockDoubted, err = x.Clock(ctx)
	return err
}

// examineHidden finds rows that are hidden because the retention was lowered, retentions and classes that take effect
// later, tenants that have sent deltas, and rows that were deleted because a clock was fast.
func (x *examiner) examineHidden(ctx context.Context) (err error) {
	if x.c.Hidden, err = x.Retention().HiddenByLowering(ctx); err != nil {
		return err
	}
	x.c.ClassesFrom = x.View.Retention().ClassesFrom()
	if x.c.Later, err = x.Retention().LaterRetentions(ctx); err != nil {
		return err
	}
	if x.c.Deltas, err = x.DeltaTenants(ctx); err != nil {
		return err
	}
	tenants, err := x.Tenants(ctx)
	for i := 0; i < len(tenants) && err == nil; i++ {
		var to time.Time
		if to, err = x.View.Retention().DroppedAhead(ctx, tenants[i]); to.After(x.c.DroppedAhead) {
			x.c.DroppedAhead = to
		}
	}
	return err
}

// examiner fills in a Condition.
type examiner struct {
	storage.View
	c   *Condition
	now func() time.Time
}

// examineWaiting finds the slots with staged rows.
func (x *examiner) examineWaiting(ctx context.Context) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(examineWorkers)
	for p := range x.Period().Partitions() {
		g.Go(panics.WrapError("examining the store", func() error {
			work, err := x.WaitingWork(ctx, p)
			if err != nil {
				return err
			}
			for _, w := range work {
				found, err := x.hasStaged(ctx, w)
				if err != nil {
					return err
				}
				mu.Lock()
				if found {
					x.c.Waiting = append(x.c.Waiting, x.waitingSlot(w))
				}
				mu.Unlock()
			}
			return nil
		}))
	}
	err := g.Wait()
	slices.SortFunc(x.c.Waiting, func(a, b WaitingSlot) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Partition, b.Partition))
	})
	return err
}

// hasStaged reports whether a slot of a partition has readable staged rows. It ignores unreadable rows, because the
// examination of the engine's files finds them.
func (x *examiner) hasStaged(ctx context.Context, w storage.Work) (bool, error) {
	rows := engine.Range{Table: engine.Stage, Partition: format.StagePartition(w.Slot, w.Partition), KeysOnly: true}
	rows.Damaged, rows.Limit = func(engine.Damage) {}, 1
	for _, err := range x.Engine().Scan(ctx, rows) {
		if err != nil {
			return false, fmt.Errorf("inspect: looking for staged rows: %w", err)
		}
		return true, nil
	}
	return false, nil
}

func (x *examiner) waitingSlot(w storage.Work) WaitingSlot {
	end := time.UnixMilli(x.Period().SlotEnd(w.Slot))
	found := WaitingSlot{Partition: w.Partition, Slot: w.Slot, End: end, Since: end}
	if !w.Since.IsZero() {
		found.Since = w.Since
	}
	return found
}

// errEnough ends the verification of blobs.
var errEnough = errors.New("inspect: enough blobs verified")

// verifySlots reads the blobs of the slots that have ended, starting with those that have waited longest.
func (x *examiner) verifySlots(ctx context.Context) error {
	now, bytes := x.now(), 0
	for i := range x.c.Waiting {
		w := &x.c.Waiting[i]
		if w.End.After(now) {
			continue
		}
		err := x.verifySlot(ctx, w, &bytes)
		if errors.Is(err, errEnough) {
			x.c.Unverified = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *examiner) verifySlot(ctx context.Context, w *WaitingSlot, bytes *int) error {
	rows := engine.Range{Table: engine.Stage, Partition: format.StagePartition(w.Slot, w.Partition)}
	rows.Damaged = func(engine.Damage) {} // Unreadable blobs are found in the files.
	for row, err := range x.Engine().Scan(ctx, rows) {
		if err != nil {
			return fmt.Errorf("inspect: reading the staging log of slot %d, partition %d: %w", w.Slot, w.Partition, err)
		}
		if *bytes >= verifiedBytes {
			return errEnough
		}
		*bytes += len(row.Value)
		w.Blobs++
		x.c.Verified++
		var reader format.BlobReader
		if err := reader.Open(row.Value); err != nil {
			w.Damaged++
			x.c.DamagedRows++
			if key := row.Clustering; len(x.c.Damaged) < maxDamagedNamed {
				x.c.Damaged = append(x.c.Damaged, DamagedRow{
					Slot: w.Slot, End: w.End, Partition: w.Partition, Writer: fmt.Sprintf("%x", key[0].Text),
					Seq: key[1].Int, Err: err,
				})
			}
		}
	}
	return nil
}

// examineExpired finds the windows of raw rows that should have been deleted. It also checks the last windows that are
// no longer listed: they still have rows if the rows were written with a longer retention.
func (x *examiner) examineExpired(ctx context.Context) error {
	tenants, err := x.Tenants(ctx)
	if err != nil {
		return err
	}
	x.c.Tenants = len(tenants)
	for i, tenant := range tenants {
		if err := x.examineExpiredOf(ctx, tenant, i < leftoverTenants); err != nil {
			return err
		}
	}
	return nil
}

func (x *examiner) examineExpiredOf(ctx context.Context, tenant string, leftovers bool) error {
	newest, ok, err := x.Retention().DueWindow(ctx, tenant)
	if err != nil || !ok {
		return err
	}
	listed, err := x.Windows(ctx, tenant)
	if err != nil {
		return err
	}
	windows := slices.DeleteFunc(slices.Clone(listed), func(w int64) bool { return w > newest })
	for w := newest - leftoverWindows + 1; w <= newest && leftovers; w++ {
		if !slices.Contains(listed, w) {
			windows = append(windows, w)
		}
	}
	slices.Sort(windows)
	for _, w := range windows {
		rows, err := x.HasRows(ctx, tenant, w)
		if err != nil {
			return err
		}
		until, err := x.Retention().LastExpiry(ctx, tenant, w)
		if err != nil {
			return err
		}
		if e := (ExpiredWindow{Tenant: tenant, Window: w, Until: until, Listed: slices.Contains(listed, w),
			Rows: rows}); e.Listed || e.Rows {
			x.c.Expired = append(x.c.Expired, e)
		}
	}
	return nil
}

// examineProcesses finds the processes that are alive.
func (x *examiner) examineProcesses(
	ctx context.Context, before []membership.Process, listen func(context.Context) error,
) error {
	after, looked := before, x.now()
	if len(before) > 0 && listen != nil {
		var err error
		if before, err = x.Processes(ctx); err != nil { // Read again, because the previous steps took time.
			return err
		}
		if err := listen(ctx); err != nil {
			return err
		}
		if after, err = x.Processes(ctx); err != nil {
			return err
		}
	}
	now := x.now()
	for _, p := range after {
		i := slices.IndexFunc(before, func(b membership.Process) bool { return b.Writer == p.Writer })
		seen := ProcessSeen{Process: p, Alive: i < 0 || before[i].Beat != p.Beat,
			Quiet: now.Sub(time.UnixMilli(p.ClockMS))}
		if seen.Alive {
			// The process's clock showed ClockMS when it wrote its last heartbeat: after the first read and, if it
			// wrote more than one heartbeat since, at most beatSlack ago. A single heartbeat may be older, because the
			// process may have stopped after it.
			slack := now.Sub(looked) + time.Second
			if i >= 0 && p.Beat > before[i].Beat+1 {
				slack = min(slack, beatSlack)
			}
			seen.Ahead = max(-seen.Quiet, 0) + min(slack-seen.Quiet, 0)
		}
		x.c.Processes = append(x.c.Processes, seen)
	}
	return nil
}

// examineRetentions reads the advertised retentions of processes, on which hidden and expired windows depend.
func (x *examiner) examineRetentions(ctx context.Context) error {
	if err := x.View.Retention().LoadAdvertised(ctx); err != nil {
		return err
	}
	x.c.Keeps = x.View.Retention().DifferingTexts()
	return nil
}
