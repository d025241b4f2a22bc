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
	// examineWorkers is how many rows are looked for at once.
	examineWorkers = 16
	// verifiedBytes bounds the blobs whose checksums Examine computes.
	verifiedBytes = 64 << 20
	// maxDamagedNamed bounds the damaged rows that Examine names; it counts all.
	maxDamagedNamed = 20
	// leftoverWindows and leftoverTenants bound where Examine looks for rows of expired windows that aren't listed.
	leftoverWindows = 60
	leftoverTenants = 20
	// beatSlack is how old a beat may look that was just written.
	beatSlack = membership.BeatInterval + time.Second
)

// ExamineOptions configure Examine.
type ExamineOptions struct {
	// Retention is how long raw samples are kept, Retention5m and Retention1h how long rollups are; 0: for ever.
	Retention, Retention5m, Retention1h time.Duration
	// TenantRetention and Classes are those of Options.
	TenantRetention map[string]retention.Keep
	Classes         []retention.Class
	// Listen is called between two looks at the processes; it waits for at least two beats. nil: there is one
	// look, and no process is known to live.
	Listen func(ctx context.Context) error
	// Files asks for all of the engine's files to be verified, where they are this process': it reads all of the disk.
	// Otherwise damage that queries have met since the engine was opened is reported.
	Files bool
	// Now is the clock.
	Now func() time.Time
}

// Condition is how a store is found from outside, without being opened.
type Condition struct {
	Created time.Time
	// RestoredFrom is the name of the backup from which the store was restored; "": it wasn't.
	RestoredFrom string
	Periods      []format.Period
	// Tenants is how many have rows.
	Tenants   int
	Processes []ProcessSeen
	// Keeps are the retentions of processes, in words, where they are configured otherwise than others: the longest holds.
	Keeps []string
	// Leases are by partition.
	Leases []membership.Lease
	// Waiting are the slots with unsealed samples, oldest first.
	Waiting []WaitingSlot
	// ClockSeen is the time at which the seen time was last written, zero where there is none. ClockDoubted
	// is true if the clock was not believed then, or wouldn't be now: see design/clocks.md. On a cluster both are unset.
	ClockSeen    time.Time
	ClockDoubted bool
	// Expired are the windows past their retention and its grace that are still there.
	Expired []ExpiredWindow
	// Hidden are horizons of rows that are hidden because the retention was lowered, and may still be shown.
	Hidden []retention.Change
	// ClassesFrom is when the retention classes that were configured last are in force; zero: they are.
	ClassesFrom time.Time
	// Later are retentions that count in full from later windows on.
	Later []retention.LaterRetention
	// Deltas are the tenants that have sent deltas.
	Deltas []starts.DeltaTenant
	// DroppedAhead is up to when raw samples of some tenant were dropped by a clock that was ahead; zero: none were.
	DroppedAhead time.Time
	// Verified is how many staged blobs were read; Unverified is true if there were more to read.
	Verified   int
	Unverified bool
	// DamagedRows is how many rows can't be read; Damaged names the first of them, and why.
	DamagedRows int
	Damaged     []DamagedRow
	// Files are the engine's files that were verified, FileBytes their bytes; 0 where servers keep them.
	Files     int
	FileBytes int64
	// Unreadable is how many parts of files, or rows, can't be read at all; Problems names the first of them.
	Unreadable int
	Problems   []string
}

// unreadable counts and names what can't be read.
func (c *Condition) unreadable(problem string) {
	c.Unreadable++
	if len(c.Problems) < maxDamagedNamed {
		c.Problems = append(c.Problems, problem)
	}
}

// goOn notes damage that ended a part of the examination, so that the rest of it goes on.
func (c *Condition) goOn(err error) error {
	if !errors.Is(err, engine.ErrCorrupt) {
		return err
	}
	c.unreadable(err.Error())
	return nil
}

// ProcessSeen is a process that has written its row within the last hours.
type ProcessSeen struct {
	membership.Process
	// Alive is true if it was heard of between two looks.
	Alive bool
	// Quiet is how long ago its last beat was, by its clock and ours.
	Quiet time.Duration
	// Ahead is by how much its clock must be ahead of ours at least, if it is alive; negative: behind.
	Ahead time.Duration
}

// WaitingSlot is a slot of a partition with unsealed samples.
type WaitingSlot struct {
	Partition int
	Slot      int64
	// End is when the slot ended, or will; Since is when its samples could have been sealed at the earliest:
	// its end, or for what came late, the hour of arrival.
	End, Since time.Time
	// Blobs were read and Damaged of them are damaged; both are 0 if the slot isn't over.
	Blobs, Damaged int
}

// OnlyDamaged reports whether nothing in the slot can be sealed.
func (w *WaitingSlot) OnlyDamaged() bool { return w.Blobs > 0 && w.Blobs == w.Damaged }

// ExpiredWindow is a window past its retention and its grace.
type ExpiredWindow struct {
	Tenant string
	Window int64
	// Until is when its rows were to go.
	Until time.Time
	// Listed is true if it hasn't been dropped, Rows if there are still rows in it.
	Listed, Rows bool
}

// DamagedRow is a stage row that can't be read.
type DamagedRow struct {
	Slot      int64
	Partition int
	// Writer is hexadecimal.
	Writer string
	Seq    int64
	Err    error
}

func (d *DamagedRow) String() string {
	return fmt.Sprintf("stage: slot %d, partition %d, writer %s, seq %d: %v", d.Slot, d.Partition, d.Writer, d.Seq, d.Err)
}

// Examine looks at a store in the engine without opening it: nothing is written, nobody hears of it, and no head
// is built. It reads some rows of each slot that may wait, the blobs of those that are over up to a bound, and
// the small tables. It returns ErrNoStore and ErrNewerFormat as storage.Open does.
func Examine(ctx context.Context, eng engine.Engine, o ExamineOptions) (*Condition, error) {
	opts := storage.DefaultOptions()
	opts.Retention, opts.Retention5m, opts.Retention1h = o.Retention, o.Retention5m, o.Retention1h
	opts.TenantRetention, opts.Classes, opts.Now = o.TenantRetention, o.Classes, o.Now
	v, err := storage.OpenView(ctx, eng, opts)
	if err != nil {
		return nil, err
	}
	x := &examiner{View: v, now: o.Now, c: &Condition{Created: v.Created(), RestoredFrom: v.RestoredFrom(), Periods: slices.Clone(v.Period().All())}}
	before, err := v.Processes(ctx)
	if err := x.c.goOn(err); err != nil {
		return nil, err
	}
	x.c.Leases, err = v.Leases(ctx)
	if err := x.c.goOn(err); err != nil {
		return nil, err
	}
	files := x.knownFiles
	if o.Files {
		files = x.files
	}
	for _, look := range []func(context.Context) error{x.kept, x.clock, x.waiting, x.verify, x.expired, x.hidden, files} {
		if err := x.c.goOn(look(ctx)); err != nil {
			return nil, err
		}
	}
	return x.c, x.seen(ctx, before, o.Listen)
}

// files verifies the engine's files, where they are this process'.
func (x *examiner) files(ctx context.Context) (err error) {
	if v, ok := engine.As[interface {
		VerifyFiles(ctx context.Context, report func(problem string)) (files int, bytes int64, err error)
	}](x.Engine()); ok {
		x.c.Files, x.c.FileBytes, err = v.VerifyFiles(ctx, x.c.unreadable)
	}
	return err
}

// knownFiles counts the files that the engine has found damaged.
func (x *examiner) knownFiles(context.Context) error {
	if e, ok := engine.As[interface{ DamagedFiles() []string }](x.Engine()); ok {
		for _, problem := range e.DamagedFiles() {
			x.c.unreadable(problem)
		}
	}
	return nil
}

// clock looks at what a store on one machine has seen of time.
func (x *examiner) clock(ctx context.Context) (err error) {
	x.c.ClockSeen, x.c.ClockDoubted, err = x.Clock(ctx)
	return err
}

// hidden looks for what a lowered retention hides, for what a clock that was ahead has dropped, and for tenants whose start timestamps aren't hidden.
func (x *examiner) hidden(ctx context.Context) (err error) {
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

// waiting finds the slots whose stage isn't empty.
func (x *examiner) waiting(ctx context.Context) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(examineWorkers)
	for p := range x.Period().Partitions() {
		g.Go(panics.AsError("examining the store", func() error {
			work, err := x.Waiting(ctx, p)
			if err != nil {
				return err
			}
			for _, w := range work {
				found, err := hasRows(ctx, x.Engine(), engine.Stage, format.StagePartition(w.Slot, p))
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

func (x *examiner) waitingSlot(w storage.Work) WaitingSlot {
	end := time.UnixMilli(x.Period().SlotEnd(w.Slot))
	found := WaitingSlot{Partition: w.Partition, Slot: w.Slot, End: end, Since: end}
	if !w.Since.IsZero() {
		found.Since = w.Since
	}
	return found
}

// errEnough ends verifying.
var errEnough = errors.New("inspect: enough blobs verified")

// verify reads the blobs of the slots that are over, those first that have waited longest.
func (x *examiner) verify(ctx context.Context) error {
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
	rows.Damaged = func(engine.Damage) {} // What can't be read at all is found in the files.
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
					Slot: w.Slot, Partition: w.Partition, Writer: fmt.Sprintf("%x", key[0].Text), Seq: key[1].Int, Err: err,
				})
			}
		}
	}
	return nil
}

// expired finds the windows of raw rows that should have gone. Of those that aren't listed any more, the last ones are
// looked at: they have rows if they were written with a longer retention.
func (x *examiner) expired(ctx context.Context) error {
	tenants, err := x.Tenants(ctx)
	if err != nil {
		return err
	}
	x.c.Tenants = len(tenants)
	for i, tenant := range tenants {
		if err := x.expiredOf(ctx, tenant, i < leftoverTenants); err != nil {
			return err
		}
	}
	return nil
}

func (x *examiner) expiredOf(ctx context.Context, tenant string, leftovers bool) error {
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
		if e := (ExpiredWindow{Tenant: tenant, Window: w, Until: until, Listed: slices.Contains(listed, w), Rows: rows}); e.Listed || e.Rows {
			x.c.Expired = append(x.c.Expired, e)
		}
	}
	return nil
}

// seen listens for who is there.
func (x *examiner) seen(ctx context.Context, before []membership.Process, listen func(context.Context) error) error {
	after, looked := before, x.now()
	if len(before) > 0 && listen != nil {
		var err error
		if before, err = x.Processes(ctx); err != nil { // What came before took its time.
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
		seen := ProcessSeen{Process: p, Alive: i < 0 || before[i].Beat != p.Beat, Quiet: now.Sub(time.UnixMilli(p.ClockMS))}
		if seen.Alive {
			// Its clock showed ClockMS at a moment between the first look, or beatSlack ago, and now. One beat may have been
			// the last one, of a process that ended since.
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

// kept reads how long processes keep what, which holds for what should be hidden and gone, too.
func (x *examiner) kept(ctx context.Context) error {
	if err := x.View.Retention().LearnAdvertised(ctx); err != nil {
		return err
	}
	x.c.Keeps = x.View.Retention().Differing()
	return nil
}
