package ui

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/doctor"
)

// examineEvery is the time for which the findings of an examination are reused.
const examineEvery = time.Minute

// examinationResult holds the result of the last examination.
type examinationResult struct {
	mu    sync.Mutex
	at    time.Time
	found []doctor.Finding
}

// healthAnswer is the response of the endpoint health.
type healthAnswer struct {
	Engine string      `json:"engine"`
	Memory memoryUsage `json:"memory"`
	// Disk is the disk usage of the data directory and the free space. It is nil if the data isn't on this machine.
	Disk *diskUsage `json:"disk"`
	// Space is the disk usage by kind: of the rows of each table, by its name, and of other parts of the engine. It is
	// nil if unknown.
	Space    map[string]int64 `json:"space"`
	Findings []doctor.Finding `json:"findings"`
	// Examined is the time at which the findings were made.
	Examined time.Time `json:"examined"`
}

// memoryUsage is the memory usage and the memory limit of the process in bytes.
type memoryUsage struct {
	Used int64 `json:"used"`
	Max  int64 `json:"max"`
}

type diskUsage struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Free  int64  `json:"free"`
	Total int64  `json:"total"`
}

func (a *api) serveHealth(r *http.Request) (any, error) {
	out := healthAnswer{Engine: a.Engine}
	out.Memory.Used, out.Memory.Max = a.Memory()
	if a.Disk != nil {
		d, err := a.Disk()
		if err != nil {
			return nil, err
		}
		out.Disk = &diskUsage{d.Path, d.Bytes, d.Free, d.Total}
	}
	var err error
	if out.Space, err = a.Store.Space(r.Context()); err != nil {
		return nil, err
	}
	if out.Disk != nil && out.Space != nil {
		// Use the sum of the parts: files may have changed since Disk was measured.
		out.Disk.Bytes = 0
		for _, n := range out.Space {
			out.Disk.Bytes += n
		}
	}
	out.Findings, out.Examined, err = a.examineStore(r.Context())
	return out, err
}

// examineStore examines the store, or returns the findings of a recent examination. Concurrent calls share an
// examination.
func (a *api) examineStore(ctx context.Context) ([]doctor.Finding, time.Time, error) {
	a.examined.mu.Lock()
	defer a.examined.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, time.Time{}, err
	}
	if a.examined.at.IsZero() || time.Since(a.examined.at) > examineEvery {
		found := a.Examine(ctx)
		if err := ctx.Err(); err != nil { // The findings may only reflect that the request was canceled.
			return nil, time.Time{}, err
		}
		doctor.SortFindings(found)
		a.examined.found, a.examined.at = append([]doctor.Finding{}, found...), time.Now().UTC()
	}
	return a.examined.found, a.examined.at, nil
}
