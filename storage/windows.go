package storage

import (
	"math"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Windows of rollups are wider than those of raw rows and the same in every period. Their numbers lie apart,
// so that a window's number says its resolution, too:
//
//	raw   … 20,600 20,601 …               days since 1970, as long as there was one period
//	5m    2^40 + … 2,942 2,943 …          weeks
//	1h    2^41 + … 686 687 …              30 days
//
// Day windows never straddle a rollup's window, for all begin at midnight.
const (
	firstWindow5m = int64(rollup.FiveMinutes) << windowShift
	firstWindow1h = int64(rollup.OneHour) << windowShift
	windowShift   = 40

	window5mMS = 7 * dayMS
	window1hMS = 30 * dayMS
)

// resolutionOf returns the resolution of a window's rows.
func resolutionOf(window int64) rollup.Resolution {
	if window < 1<<(windowShift-1) {
		return rollup.Raw
	}
	return rollup.Resolution((window + 1<<(windowShift-1)) >> windowShift)
}

// windowAt returns the window of a resolution that a timestamp lies in.
func (p *periods) windowAt(res rollup.Resolution, t int64) int64 {
	switch res {
	case rollup.FiveMinutes:
		return firstWindow5m + floorDiv(t-1, window5mMS)
	case rollup.OneHour:
		return firstWindow1h + floorDiv(t-1, window1hMS)
	default:
		return p.windowOfTime(t)
	}
}

// windowOfSlot returns the window of a resolution that holds a slot.
func (p *periods) windowOfSlot(res rollup.Resolution, slot int64) int64 {
	return p.windowAt(res, p.slotStart(slot)+1)
}

// endOf returns when a window of any resolution ends, milliseconds.
func (p *periods) endOf(window int64) int64 {
	switch resolutionOf(window) {
	case rollup.FiveMinutes:
		return (window - firstWindow5m + 1) * window5mMS
	case rollup.OneHour:
		return (window - firstWindow1h + 1) * window1hMS
	default:
		return p.windowEnd(window)
	}
}

// firstWindowOf and lastWindowOf bound the numbers of a resolution's windows.
func firstWindowOf(res rollup.Resolution) int64 {
	if res == rollup.Raw {
		return -math.MaxInt64
	}
	return int64(res)<<windowShift - 1<<(windowShift-1)
}

func lastWindowOf(res rollup.Resolution) int64 { return firstWindowOf(res+1) - 1 }

// dayOf returns the start of the day that holds a slot, milliseconds.
func (p *periods) dayOf(slot int64) int64 { return floorDiv(p.slotStart(slot), dayMS) * dayMS }

// tableOf returns the table of a resolution's labels and chunks.
func tableOf(res rollup.Resolution) *engine.Table {
	switch res {
	case rollup.FiveMinutes:
		return engine.R5m
	case rollup.OneHour:
		return engine.R1h
	default:
		return engine.Raw
	}
}

// spanOf returns the times that the slots of a window span, milliseconds.
func (p *periods) spanOf(window int64) (start, end int64) {
	end = p.endOf(window)
	width := p.ofWindow(window).RawWindowMS
	switch resolutionOf(window) {
	case rollup.FiveMinutes:
		width = window5mMS
	case rollup.OneHour:
		width = window1hMS
	}
	return end - width, end
}
