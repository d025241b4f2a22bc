package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Clock is one that was read.
type Clock struct {
	// Who has it.
	Who string
	// Ahead is by how much it is ahead of this machine's, at least; Error is how far off that may be.
	Ahead, Error time.Duration
}

const (
	clockNote    = time.Second
	clockWarning = time.Minute
	// clockError is from when on a process refuses writes; the protocol needs less than a day.
	clockError = 6 * time.Hour
)

// Clocks compares clocks with this machine's and with one another.
func Clocks(clocks []Clock) []Finding {
	if len(clocks) == 0 {
		return nil
	}
	all := []Clock{{Who: "this machine"}}
	for _, c := range clocks {
		switch { // What it is off by at least.
		case c.Ahead > c.Error:
			c.Ahead -= c.Error
		case c.Ahead < -c.Error:
			c.Ahead += c.Error
		default:
			c.Ahead = 0
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b Clock) int { return cmp.Compare(a.Ahead, b.Ahead) })
	first, last := all[0], all[len(all)-1]
	apart := last.Ahead - first.Ahead
	if apart <= clockNote {
		return []Finding{ok("no two clocks of nodes, processes and this machine differ by more than %s", about(clockNote))}
	}
	f := Finding{Note, fmt.Sprintf("the clock of %s is %s fast compared to the clock of %s", last.Who, about(apart), first.Who),
		"samples more than 10 minutes in the future by both clocks are rejected, and the clocks decide when slots are sealed",
		"synchronize the clocks of all machines with NTP or PTP: chronyc tracking, or timedatectl"}
	switch {
	case apart > clockError:
		f.Level, f.Why = Error, "a process whose clock differs by more than 6 h from the cluster's clock rejects all samples; from a day on, samples can "+
			"be missing from queries"
	case apart > clockWarning:
		f.Level = Warning
	}
	return []Finding{f}
}
