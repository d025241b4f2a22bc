package ui

import (
	"net/http"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/storage/retention"
)

// windowsAnswer lists a tenant's sealed windows.
type windowsAnswer struct {
	Windows []window `json:"windows"`
	// Cut is set if older windows were left out.
	Cut bool `json:"cut"`
	// Kept is the retention of samples and rollups, Longest the retention of the class that is kept the longest.
	Kept    kept `json:"kept"`
	Longest kept `json:"longest"`
}

// kept is the retention of each resolution in seconds; 0: forever.
type kept struct {
	Raw float64 `json:"raw"`
	R5m float64 `json:"5m"`
	R1h float64 `json:"1h"`
}

func retentionsOf(k retention.Keep) kept {
	return kept{k.Raw.Seconds(), k.FiveMinutes.Seconds(), k.OneHour.Seconds()}
}

type window struct {
	Resolution string    `json:"resolution"`
	Start      time.Time `json:"start"`
	End        time.Time `json:"end"`
	// Hidden is the time when the last sample is past its retention, Goes the time when its space is freed; zero:
	// never.
	Hidden time.Time `json:"hidden,omitzero"`
	Goes   time.Time `json:"goes,omitzero"`
	// Bytes is the approximate size of its rows; -1: unknown.
	Bytes int64 `json:"bytes"`
	// Slots is the number of slots with data, out of Of. For raw windows, Again is how many times a slot of a partition
	// was sealed again because of late samples, and Imported the number of slots with imports.
	Slots    int `json:"slots"`
	Of       int `json:"of"`
	Again    int `json:"again"`
	Imported int `json:"imported"`
	// Unrolled is the number of seals without rollups.
	Unrolled int `json:"unrolled"`
}

func (a *api) windows(r *http.Request) (any, error) {
	name, err := one(r)
	if err != nil {
		return nil, err
	}
	leave, err := enter(r.Context(), a.surveying)
	if err != nil {
		return nil, err
	}
	defer leave()
	list, cut, err := a.Store.Survey(r.Context(), name)
	if err != nil {
		return nil, err
	}
	usual, longest := a.Store.RetentionOf(name)
	out := windowsAnswer{Windows: []window{}, Cut: cut, Kept: retentionsOf(usual), Longest: retentionsOf(longest)}
	for _, w := range list {
		out.Windows = append(out.Windows, window{
			Resolution: w.Resolution.String(), Start: w.Start, End: w.End, Hidden: w.Hidden,
			Goes: w.Goes, Bytes: w.Bytes,
			Slots: w.Slots, Of: w.Of, Again: w.Again, Imported: w.Imported, Unrolled: w.Unrolled,
		})
	}
	return out, nil
}

// workAnswer is the state of sealing and rolling up, including parts that belong to no tenant.
type workAnswer struct {
	downsample.Status
	// Whole is set if nothing was left out.
	Whole bool `json:"whole"`
}

// work returns the status. Unless the user is an admin, parts that may name series or other tenants are left out.
func (a *api) work(r *http.Request) (any, error) {
	s := a.Work(r.Context())
	if u := server.UserOf(r.Context()); u == nil || u.Admin() {
		return workAnswer{s, true}, nil
	}
	s.Doing, s.Tasks, s.Rollups.First = "", []downsample.TaskStatus{}, []downsample.WindowStatus{}
	s.Compaction.First, s.Counting.First = []downsample.RestingWindow{}, []downsample.RestingWindow{}
	for i := range s.Partitions {
		s.Partitions[i].LastError, s.Partitions[i].Owner = "", ""
	}
	return workAnswer{s, false}, nil
}
