package bucketfn

import "time"

// Windows are the time ranges for which a function is evaluated: one per step, all of the same length. As in PromQL
// they are left-open and right-closed, and they may overlap.
//
//	asked       (......]            right edges at First + k*Step
//	     |--------|--------|        multiples of Snap
//	snapped (.....]                 both edges moved back to multiples
//	recent  (..........]            after SnapUntil only the left edge is moved
type Windows struct {
	// First is the right edge of the first window, and Step the interval to the next, in milliseconds.
	First, Step int64
	// Steps is the number of windows.
	Steps int
	// Span is the length of a window, in milliseconds.
	Span int64
	// Snap, if not 0, moves each right edge back to a multiple of Snap, in milliseconds.
	Snap int64
	// SnapUntil is the last right edge that Snap moves, in milliseconds. Windows that end later keep their right edge,
	// but their left edge is moved as if the whole window were moved. 0 moves all right edges.
	SnapUntil int64
	// Scale is the length of the requested window divided by Span, if windows were widened. The results of functions
	// that grow with the length of a window, such as increase, are multiplied by it. 0 and 1 have no effect.
	Scale float64
}

// Window returns the edges of the window of step k.
func (w *Windows) Window(k int) (a, b int64) {
	b = w.First + int64(k)*w.Step
	if w.Snap <= 0 {
		return b - w.Span, b
	}
	moved := FloorTo(b, w.Snap)
	if w.MovesRight(b) {
		b = moved
	}
	return moved - w.Span, b
}

// MovesRight reports whether Snap moves the right edge b.
func (w *Windows) MovesRight(b int64) bool {
	return w.Snap > 0 && (w.SnapUntil == 0 || b <= w.SnapUntil)
}

// windowSeconds returns the length of a window in seconds, computed in the same way as in Prometheus' rate.
func windowSeconds(width int64) float64 { return (time.Duration(width) * time.Millisecond).Seconds() }

// scaleFactor returns the factor for functions that grow with the length of a window.
func (w *Windows) scaleFactor() float64 {
	if w.Scale == 0 {
		return 1
	}
	return w.Scale
}

// FloorTo returns the largest multiple of width that isn't greater than t.
func FloorTo(t, width int64) int64 {
	past := t % width
	if past < 0 {
		past += width
	}
	return t - past
}

// CeilTo returns the smallest multiple of width that isn't less than t.
func CeilTo(t, width int64) int64 { return -FloorTo(-t, width) }
