package membership

import (
	"slices"
	"sync"
	"time"
)

// ImportStatus is the state of an import that is under way.
type ImportStatus struct {
	Tenant string    `json:"tenant"`
	Since  time.Time `json:"since"`
	// WaitsFor is the work that the import waits for, "" if it is working. WaitsSince is the start of the wait.
	WaitsFor   string    `json:"waits_for,omitempty"`
	WaitsSince time.Time `json:"waits_since,omitzero"`
}

// ImportList has the imports of a process that are under way, oldest first.
type ImportList struct {
	mu   sync.Mutex
	list []*ImportStatus
	now  func() time.Time
}

// The kinds of work that an import may wait for.
const (
	WaitsForImport  = "another import of this process"
	WaitsForSeal    = "the seal of one of its partitions"
	WaitsForRollups = "a change of rollups by this or another process, such as an import of old samples"
)

// Begin adds an import. The caller must call end.
func (l *ImportList) Begin(tenant string) (i *ImportStatus, end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i = &ImportStatus{Tenant: tenant, Since: l.now()}
	l.list = append(l.list, i)
	return i, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = slices.DeleteFunc(l.list, func(have *ImportStatus) bool { return have == i })
	}
}

// SetWait records the work that an import waits for. what is "" if the import doesn't wait.
func (l *ImportList) SetWait(i *ImportStatus, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i.WaitsFor, i.WaitsSince = what, time.Time{}
	if what != "" {
		i.WaitsSince = l.now()
	}
}

// List returns the imports, oldest first.
func (l *ImportList) List() []ImportStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]ImportStatus, 0, len(l.list))
	for _, i := range l.list {
		all = append(all, *i)
	}
	return all
}

// Wait returns the longest time for which an import has been waiting.
func (l *ImportList) Wait() (longest time.Duration) {
	for _, i := range l.List() {
		if i.WaitsFor != "" {
			longest = max(longest, l.now().Sub(i.WaitsSince))
		}
	}
	return longest
}
