package storage

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

// importList has the imports of a process that are under way, oldest first.
type importList struct {
	mu   sync.Mutex
	list []*ImportStatus
	now  func() time.Time
}

// The kinds of work that an import may wait for.
const (
	waitsForImport  = "another import of this process"
	waitsForSeal    = "the seal of one of its partitions"
	waitsForRollups = "a change of rollups by this or another process, such as an import of old samples"
)

// begin adds an import. The caller must call end.
func (l *importList) begin(tenant string) (i *ImportStatus, end func()) {
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

// wait records what an import waits for; "": it works.
func (l *importList) wait(i *ImportStatus, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i.WaitsFor, i.WaitsSince = what, time.Time{}
	if what != "" {
		i.WaitsSince = l.now()
	}
}

// Imports returns the imports of this process that are under way, oldest first.
func (s *Store) Imports() []ImportStatus {
	l := &s.imports.running
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]ImportStatus, 0, len(l.list))
	for _, i := range l.list {
		all = append(all, *i)
	}
	return all
}

// importWait returns the time for which the import that has waited longest has been waiting.
func (s *Store) importWait() (longest time.Duration) {
	for _, i := range s.Imports() {
		if i.WaitsFor != "" {
			longest = max(longest, s.opts.Now().Sub(i.WaitsSince))
		}
	}
	return longest
}
