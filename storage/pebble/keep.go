package pebble

import (
	"fmt"
	"time"
)

// Keep selects the backups of a store that are kept. The zero value keeps all of them.
type Keep struct {
	// Last is the number of newest backups that are kept.
	Last int
	// Hourly, Daily and Weekly are the numbers of hours, days and weeks (from Monday, in UTC) whose newest backup is
	// kept. Periods without a backup don't count, so that a pause in the schedule removes nothing.
	Hourly, Daily, Weekly int
}

// DatedBackup has the properties of a backup on which Keep depends.
type DatedBackup struct {
	Name  string
	Taken time.Time
	// Damaged is set if the source was already damaged when the backup was made, or if, in a folder, files of the
	// backup are missing or have wrong sizes.
	Damaged bool
}

// KeepsAll reports whether all backups are kept.
func (k Keep) KeepsAll() bool { return k == Keep{} }

// Validate returns an error for a negative number.
func (k Keep) Validate() error {
	if k.Last < 0 || k.Hourly < 0 || k.Daily < 0 || k.Weekly < 0 {
		return fmt.Errorf("the number of backups to keep must not be negative")
	}
	return nil
}

// futureAfter is the max time by which a backup may be dated in the future. Beyond it, a clock is or was wrong.
const futureAfter = 24 * time.Hour

// Surplus returns the backups to remove. backups are sorted, the oldest first. Damaged backups don't count, and are
// removed when they are older than all backups that are kept. The newest undamaged backup is always kept. If a backup
// is dated in the future, its name is returned and nothing is removed, because the newest backups can't be determined.
func (k Keep) Surplus(backups []DatedBackup, now time.Time) (names []string, future string) {
	if k.KeepsAll() || len(backups) == 0 {
		return nil, ""
	}
	if last := backups[len(backups)-1]; last.Taken.Sub(now) > futureAfter {
		return nil, last.Name
	}
	return k.surplus(backups), ""
}

func (k Keep) surplus(backups []DatedBackup) (names []string) {
	periods := []struct {
		keep int
		of   func(time.Time) string
		last string
	}{
		{keep: k.Hourly, of: func(t time.Time) string { return t.Format("2006-01-02T15") }},
		{keep: k.Daily, of: func(t time.Time) string { return t.Format(time.DateOnly) }},
		{keep: k.Weekly, of: func(t time.Time) string {
			year, week := t.ISOWeek()
			return fmt.Sprintf("%d-%d", year, week)
		}},
	}
	stays, oldest, newer := make([]bool, len(backups)), len(backups), 0
	for i := len(backups) - 1; i >= 0; i-- {
		if backups[i].Damaged {
			continue
		}
		stays[i] = newer == 0 || newer < k.Last
		newer++
		for p := range periods {
			if name := periods[p].of(backups[i].Taken.UTC()); periods[p].keep > 0 && name != periods[p].last {
				stays[i], periods[p].last = true, name
				periods[p].keep--
			}
		}
		if stays[i] {
			oldest = i
		}
	}
	for i, b := range backups {
		if !stays[i] && (!b.Damaged || i < oldest) && oldest < len(backups) {
			names = append(names, b.Name)
		}
	}
	return names
}
