package otlp

import (
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// A delta is stored as a separate counter that starts at 0 at the start of its interval (Prometheus' proposal 48 calls
// it mini-cumulative):
//
//	sent     (12:00:00, 12:01:00] 5        (12:01:00, 12:02:00] 3
//	stored   5 at 12:01:00, start          3 at 12:02:00, start
//	         timestamp 12:00:00.001        timestamp 12:01:00.001
//
// OTLP intervals, like PromQL ranges, exclude their start. The start timestamp is the first millisecond within the
// interval, so that increase() over a range that starts where a delta starts counts the whole delta
// (promql/design.md).
//
// With its start timestamp a delta is a valid cumulative point and is translated as one: it has the names, types and
// histogram hints of cumulative metrics.

// noDelta is the value of pruner.oldestDelta for a request without deltas.
const noDelta = int64(math.MaxInt64)

// deltaPoint is a data point of a metric with delta temporality.
type deltaPoint interface {
	Timestamp() pcommon.Timestamp
	StartTimestamp() pcommon.Timestamp
	SetStartTimestamp(pcommon.Timestamp)
	Flags() pmetric.DataPointFlags
}

// rejectsDelta sets the start timestamp of a delta. It reports whether the point is rejected, and counts it if so.
func (p *pruner) rejectsDelta(pt deltaPoint) bool {
	start, end := pt.StartTimestamp(), pt.Timestamp()
	if !p.isDelta || end == 0 || end > math.MaxInt64 || pt.Flags().NoRecordedValue() {
		return false
	}
	const ms = pcommon.Timestamp(time.Millisecond)
	first := min(start/ms+1, max(end/ms, 1)-1)
	switch {
	case start == 0:
		p.rejections.add(reasonDeltaWithoutStart, 1, func() string {
			return fmt.Sprintf("metric %.128q has delta temporality and a data point without a start timestamp",
				p.metric)
		})
		return true
	case start >= end, first == 0:
		p.rejections.add(reasonDeltaInvalidStart, 1, func() string {
			return fmt.Sprintf("metric %.128q has delta temporality and a data point that starts at %s and ends at %s",
				p.metric, start.AsTime().Format(time.RFC3339Nano), end.AsTime().Format(time.RFC3339Nano))
		})
		return true
	}
	pt.SetStartTimestamp(first * ms)
	p.oldestDelta = min(p.oldestDelta, int64(end/ms))
	return false
}
