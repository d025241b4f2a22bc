package ui

import (
	"net/http"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/storage/retention"
)

// windowsAnswer is the response of the endpoint windows.
type windowsAnswer struct {
	Windows []window `json:"windows"`
	// Cut is set if older windows were omitted.
	Cut bool `json:"cut"`
	// Kept is the default retention. Longest is the longest retention of any class.
	Kept    keptSeconds `json:"kept"`
	Longest keptSeconds `json:"longest"`
}

// keptSeconds is the retention of each resolution in seconds; 0: forever.
type keptSeconds struct {
	Raw float64 `json:"raw"`
	R5m float64 `json:"5m"`
	R1h float64 `json:"1h"`
}

func retentionsOf(k retention.Durations) keptSeconds {
	return keptSeconds{k.Raw.Seconds(), k.FiveMinutes.Seconds(), k.OneHour.Seconds()}
}

type window struct {
	Resolution string    `json:"resolution"`
	Start      time.Time `json:"start"`
	End        time.Time `json:"end"`
	// Hidden is the time at which the window's last sample reaches its retention. Goes is the time at which the
	// window's space is freed. Zero means never.
	Hidden time.Time `json:"hidden,omitzero"`
	Goes   time.Time `json:"goes,omitzero"`
	// Bytes is the approximate size of the window's rows; -1: unknown.
	Bytes int64 `json:"bytes"`
	// Slots is the number of slots with data, and Of is the number of all slots. For raw windows, Again is the number
	// of times that a slot partition was sealed again because of late samples, and Imported is the number of slots with
	// imported samples.
	Slots    int `json:"slots"`
	Of       int `json:"of"`
	Again    int `json:"again"`
	Imported int `json:"imported"`
	// Unrolled is the number of seals whose rollups are missing.
	Unrolled int `json:"unrolled"`
}

func (a *api) serveWindows(r *http.Request) (any, error) {
	name, err := onlyTenant(r)
	if err != nil {
		return nil, err
	}
	leave, err := acquireLock(r.Context(), a.surveying)
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

// workAnswer is the response of the endpoint work: the state of sealing and of rollups.
type workAnswer struct {
	downsample.Status
	// Whole is set if nothing was omitted.
	Whole bool `json:"whole"`
}

// serveWork returns the state of sealing and of rollups. For users other than admins, it omits the parts that may name
// series or other tenants.
func (a *api) serveWork(r *http.Request) (any, error) {
	s := a.Work(r.Context())
	if u := server.UserOf(r.Context()); u == nil || u.IsAdmin() {
		return workAnswer{s, true}, nil
	}
	s.Doing, s.Tasks, s.Rollups.First = "", []downsample.TaskStatus{}, []downsample.WindowStatus{}
	s.Compaction.First, s.Counting.First = []downsample.RestingWindow{}, []downsample.RestingWindow{}
	for i := range s.Partitions {
		s.Partitions[i].LastError, s.Partitions[i].Owner = "", ""
	}
	return workAnswer{s, false}, nil
}
