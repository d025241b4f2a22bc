package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Clock is a measurement of a clock.
type Clock struct {
	// Who names the owner of the clock.
	Who string
	// Ahead is the measured difference between the clock and this machine's, positive if the clock is fast. Error is
	// the max error of Ahead.
	Ahead, Error time.Duration
}

const (
	clockNote    = time.Second
	clockWarning = time.Minute
	// clockError is the difference between clocks at which a process rejects writes. The storage protocol tolerates
	// differences of up to a day.
	clockError = 6 * time.Hour
)

// CheckClocks compares the clocks with this machine's clock and with each other.
func CheckClocks(clocks []Clock) []Finding {
	if len(clocks) == 0 {
		return nil
	}
	all := []Clock{{Who: "this machine"}}
	for _, c := range clocks {
		switch { // Subtract the error of the measurement.
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
		return []Finding{ok("no two clocks of nodes, processes and this machine differ by more than %s",
			formatApprox(clockNote))}
	}
	f := Finding{Note, fmt.Sprintf("the clock of %s is %s fast compared to the clock of %s", last.Who,
		formatApprox(apart), first.Who),
		"samples more than 10 minutes in the future by both clocks are rejected, and the clocks decide when slots " +
			"are sealed",
		"synchronize the clocks of all machines with NTP or PTP: chronyc tracking, or timedatectl"}
	switch {
	case apart > clockError:
		f.Level, f.Why = Error, "a process whose clock differs by more than 6 h from the cluster's clock rejects all "+
			"samples; if it differs by a day or more, samples can be missing from queries"
	case apart > clockWarning:
		f.Level = Warning
	}
	return []Finding{f}
}
