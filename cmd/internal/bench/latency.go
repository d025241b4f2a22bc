package bench

import (
	"math"
	"time"
)

// latencyHistogram is a histogram of durations. There are 32 buckets per power of two, so the error is at most 2.2 %
// and the memory is constant.
type latencyHistogram struct {
	counts [32 * 40]int64
	total  int64
	sum    time.Duration
	max    time.Duration
}

// bucket returns the index of a duration's bucket. The first bucket starts at a microsecond.
func (l *latencyHistogram) bucket(d time.Duration) int {
	us := float64(d) / float64(time.Microsecond)
	return min(max(0, int(math.Log2(max(us, 1))*32)), len(l.counts)-1)
}

func (l *latencyHistogram) add(d time.Duration) {
	l.counts[l.bucket(d)]++
	l.total++
	l.sum += d
	l.max = max(l.max, d)
}

func (l *latencyHistogram) addAll(other *latencyHistogram) {
	for b, n := range other.counts {
		l.counts[b] += n
	}
	l.total += other.total
	l.sum += other.sum
	l.max = max(l.max, other.max)
}

// quantile returns the quantile q of the durations, or 0 if there are none.
func (l *latencyHistogram) quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(l.total)))
	for b, n := range l.counts {
		if rank -= n; n > 0 && rank <= 0 {
			return min(l.max, time.Duration(math.Exp2(float64(b+1)/32)*float64(time.Microsecond)))
		}
	}
	return l.max
}

func (l *latencyHistogram) mean() time.Duration {
	if l.total == 0 {
		return 0
	}
	return l.sum / time.Duration(l.total)
}
