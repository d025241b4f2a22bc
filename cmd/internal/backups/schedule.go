package backups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/pebble"
)

// ScheduleOptions are the options of a schedule.
type ScheduleOptions struct {
	Place Location
	// Every is the time between the starts of two backups.
	Every time.Duration
	// Store returns the identity of the store. Snapshot makes a snapshot in the folder dir, which must not exist yet.
	Store    func(context.Context) (string, error)
	Snapshot func(ctx context.Context, dir string) error
	// Folder is the folder for snapshots. It must be on the same disk as the data.
	Folder string
	// NewName returns the name for a backup made at the given time.
	NewName    func(time.Time) string
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	// firstRetry is the pause before the first retry after a failure. Each further pause is twice as long, up to Every.
	firstRetry = time.Minute
	// maxRuns is the max number of runs that Status contains.
	maxRuns = 50
	// maxSized is the number of newest stored backups for which Status contains the sizes.
	maxSized = 50
)

// errDamaged means that a backup was made from a store that was already damaged.
var errDamaged = errors.New("the store is already damaged; run cassia check to list the missing data")

// Run is one attempt to make a backup.
type Run struct {
	Name        string    `json:"name"`
	Begun       time.Time `json:"begun"`
	Seconds     float64   `json:"seconds"`
	Files       int       `json:"files"`
	Bytes       int64     `json:"bytes"`
	Copied      int       `json:"copied"`
	CopiedBytes int64     `json:"copiedBytes"`
	Removed     int       `json:"removed"`
	// Error is the reason why no backup was made or, if Made is set, another problem.
	Error   string   `json:"error,omitempty"`
	Made    bool     `json:"made"`
	Damaged []string `json:"damaged,omitempty"`
	// Future is the name of a backup dated in the future, which means that the clock is or was wrong. If there is one,
	// no older backup is removed.
	Future string `json:"future,omitempty"`

	unreadable []string // pebble.BackupStats.Unreadable
}

// Stored describes a stored backup.
type Stored struct {
	Name    string    `json:"name"`
	Taken   time.Time `json:"taken"`
	Damaged bool      `json:"damaged,omitempty"`
	// Files and Bytes are the number and the total size of the backup's files. They are omitted until the backup's file
	// list has been read.
	Files int   `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
}

// Status is the state of scheduled backups.
type Status struct {
	// Enabled is set if there is a schedule. Otherwise all other fields are empty.
	Enabled      bool    `json:"enabled"`
	To           string  `json:"to,omitempty"`
	Encrypted    bool    `json:"encrypted,omitempty"`
	EverySeconds float64 `json:"everySeconds,omitempty"`
	// Running is the start time of the backup in progress, and Next is the time of the next backup.
	Running     *time.Time `json:"running,omitempty"`
	Next        *time.Time `json:"next,omitempty"`
	LastSuccess *time.Time `json:"lastSuccess,omitempty"`
	// Runs contains the runs of this process. Stored contains the backups that existed after the last run. In both, the
	// newest comes first.
	Runs   []Run    `json:"runs"`
	Stored []Stored `json:"stored"`
	// StoredError is the reason why Stored couldn't be updated.
	StoredError string `json:"storedError,omitempty"`
}

// Schedule makes backups periodically.
type Schedule struct {
	o       ScheduleOptions
	metrics *metrics
	mu      sync.Mutex
	status  Status
	// sizes contains the sizes of backups by name. The size of a backup never changes.
	sizes map[string]size
}

type size struct {
	files int
	bytes int64
}

// NewSchedule returns a schedule. Call Run to start it.
func NewSchedule(o ScheduleOptions) *Schedule {
	s := &Schedule{o: o, metrics: newMetrics(o.Registerer, o.Every), sizes: map[string]size{}}
	s.status = Status{Enabled: true, To: o.Place.String(), Encrypted: o.Place.KeyFile != "",
		EverySeconds: o.Every.Seconds(), Runs: []Run{}, Stored: []Stored{}}
	return s
}

// Status returns the state of the schedule. If s is nil, Enabled is false.
func (s *Schedule) Status() Status {
	if s == nil {
		return Status{Runs: []Run{}, Stored: []Stored{}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.status
	out.Runs, out.Stored = slices.Clone(out.Runs), slices.Clone(out.Stored)
	return out
}

// Run makes backups until ctx ends. A restart of the process doesn't cause a backup: the next backup is made Every
// after the previous one.
func (s *Schedule) Run(ctx context.Context) {
	wait, failures := s.untilFirst(ctx), 0
	for {
		s.mu.Lock()
		next := s.o.Now().Add(wait)
		s.status.Next = &next
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		begun := time.Now()
		err := s.makeBackup(ctx)
		wait = max(0, s.o.Every-time.Since(begun))
		if failures++; err == nil || errors.Is(err, errDamaged) {
			failures = 0
		} else {
			wait = min(wait, firstRetry<<min(failures-1, 16))
		}
	}
}

// untilFirst returns the time until the first backup is due, which is Every after the newest undamaged stored backup.
// The result is at most Every, even if a backup is dated in the future because the clock was wrong.
func (s *Schedule) untilFirst(ctx context.Context) time.Duration {
	s.list(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.LastSuccess == nil {
		return 0
	}
	return min(max(0, s.status.LastSuccess.Add(s.o.Every).Sub(s.o.Now())), s.o.Every)
}

// list updates the list of stored backups and reads the sizes of the newest ones.
func (s *Schedule) list(ctx context.Context) {
	store, err := s.o.Store(ctx)
	var found []pebble.DatedBackup
	if err == nil {
		found, err = s.o.Place.List(ctx, store)
	}
	if s.noteStored(found, err); err == nil {
		s.readSizes(ctx, store, found)
	}
}

func (s *Schedule) noteStored(found []pebble.DatedBackup, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.StoredError = ""; err != nil {
		s.status.StoredError = oneLine(err)
		return
	}
	s.status.Stored = []Stored{}
	known := s.sizes
	s.sizes = map[string]size{}
	for _, b := range slices.Backward(found) {
		stored := Stored{Name: b.Name, Taken: b.Taken, Damaged: b.Damaged}
		if n, ok := known[b.Name]; ok {
			s.sizes[b.Name], stored.Files, stored.Bytes = n, n.files, n.bytes
		}
		s.status.Stored = append(s.status.Stored, stored)
		if !b.Damaged && s.status.LastSuccess == nil {
			taken := b.Taken
			s.status.LastSuccess = &taken
			s.metrics.success.Set(float64(taken.Unix()))
		}
	}
}

// readSizes reads the unknown sizes of stored backups, the newest first. If a size can't be read, measure retries it
// after the next backup.
func (s *Schedule) readSizes(ctx context.Context, store string, found []pebble.DatedBackup) {
	sizeOf, err := s.o.Place.NewSizer(ctx, store)
	if err != nil {
		s.o.Logger.Warn("can't determine the sizes of the backups", "backups", s.o.Place.String(), "err", oneLine(err))
		return
	}
	newestWhole := true // false once a complete backup has been found
	for i := range min(len(found), maxSized) {
		b := found[len(found)-1-i] // Only this goroutine changes status.Stored, so its order is the order of found.
		s.mu.Lock()
		n, ok := s.sizes[b.Name]
		s.mu.Unlock()
		if !ok {
			n.files, n.bytes, err = sizeOf(b)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.o.Logger.Warn("can't determine the size of a backup", "backup",
					s.o.Place.Name(b.Name), "err", oneLine(err))
				if errors.Is(err, pebble.ErrBackup) {
					continue // Other backups may be readable.
				}
				return
			}
		}
		s.mu.Lock()
		s.sizes[b.Name] = n
		s.status.Stored[i].Files, s.status.Stored[i].Bytes = n.files, n.bytes
		s.mu.Unlock()
		if newestWhole && !b.Damaged {
			s.metrics.bytes.Set(float64(n.bytes))
			newestWhole = false
		}
	}
}

// makeBackup makes a backup and records the result. If the process is stopping, the result isn't recorded.
func (s *Schedule) makeBackup(ctx context.Context) error {
	begun, since := s.o.Now(), time.Now()
	s.mu.Lock()
	s.status.Running = &begun
	s.mu.Unlock()
	name := s.o.NewName(begun)
	stats, err := s.backup(ctx, name, begun)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r := Run{
		Name: name, Begun: begun, Seconds: time.Since(since).Seconds(), Files: stats.Files,
		Bytes: stats.Bytes, Copied: stats.Copied,
		CopiedBytes: stats.CopiedBytes, Removed: stats.Removed, Made: err == nil, Damaged: stats.Damaged,
		Future: stats.Future, unreadable: stats.Unreadable,
	}
	var retention *pebble.RetentionError
	if errors.As(err, &retention) {
		r.Made = true
	}
	if r.Made && len(stats.Damaged) > 0 {
		err = errors.Join(errDamaged, err)
	}
	if err != nil {
		r.Error = oneLine(err)
	}
	s.recordRun(r, err)
	s.list(ctx)
	return err
}

// recordRun records a run, counts it, and logs it.
func (s *Schedule) recordRun(r Run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Running = nil
	s.status.Runs = slices.Insert(s.status.Runs, 0, r)
	s.status.Runs = s.status.Runs[:min(len(s.status.Runs), maxRuns)]
	s.metrics.copied.Add(float64(r.CopiedBytes))
	if r.Made {
		s.sizes[r.Name] = size{r.Files, r.Bytes}
	}
	if r.Made && len(r.Damaged) == 0 {
		s.status.LastSuccess = &r.Begun
		s.metrics.success.Set(float64(r.Begun.Unix()))
		s.metrics.seconds.Set(r.Seconds)
		s.metrics.bytes.Set(float64(r.Bytes))
	}
	about := []any{"backup", s.o.Place.Name(r.Name), "files", r.Files, "bytes", r.Bytes, "copied_bytes",
		r.CopiedBytes, "removed", r.Removed,
		"took", time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond)}
	for _, text := range r.unreadable {
		s.o.Logger.Warn("some of the backups can't be read", "backups", s.o.Place.String(), "err", text)
	}
	if r.Future != "" {
		s.o.Logger.Warn(
			"no older backup is removed, because the time of one backup is in the future; check this machine's clock",
			"backup", s.o.Place.Name(r.Future),
		)
	}
	if err == nil {
		s.metrics.runs.WithLabelValues(resultSuccess).Inc()
		s.o.Logger.Info("backup completed", about...)
		return
	}
	s.metrics.runs.WithLabelValues(resultFailure).Inc()
	s.o.Logger.Error("backup failed", append(about, "made", r.Made, "err", r.Error)...)
}

func (s *Schedule) backup(ctx context.Context, name string, begun time.Time) (stats pebble.BackupStats, err error) {
	claim, err := ClaimSnapshot(ctx, s.o.Folder, name)
	if err != nil {
		return stats, err
	}
	defer func() { err = errors.Join(err, claim.Remove()) }()
	dir := filepath.Join(s.o.Folder, name)
	if err := s.o.Snapshot(ctx, dir); err != nil {
		return stats, fmt.Errorf("snapshot: %w", err)
	}
	if warning := s.o.Place.LocationWarning(s.o.Folder, dir); warning != "" {
		s.o.Logger.Warn("the backup folder may have changed", "err", warning)
	}
	stats, err = s.o.Place.Backup(ctx, dir, name, begun)
	if err == nil {
		if err := s.o.Place.RecordBackup(s.o.Folder, name); err != nil {
			s.o.Logger.Warn("can't record the location of the backup", "err", oneLine(err))
		}
	}
	return stats, err
}

// oneLine formats an error for display in one line.
func oneLine(err error) string {
	return storage.PlainText(strings.Join(strings.Fields(err.Error()), " "))
}
