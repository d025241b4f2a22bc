package ha

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWayOfAReplicasSample(t *testing.T) {
	now, margin := time.UnixMilli(1_000_000), 10*time.Second
	first := firstElection("a", 500_000, margin, now) // a from 489,999
	flushed := first.withWatermark(progress{600_000, 600_000, math.MaxInt64}, margin)
	taking := flushed.withTerm(candidate{replica: "b"}, 2_000_000, "writer", now)
	settled := taking
	settled.Taking = ""
	back := settled.withWatermark(progress{700_000, 700_000, math.MaxInt64}, margin)
	back = back.withTerm(candidate{replica: "a"}, 2_000_000, "", now)
	for _, c := range []struct {
		name    string
		choice  election
		replica string
		t       int64
		want    Disposition
	}{
		{"the elected one", first, "a", 500_000, StoreSample},
		{"another one", first, "b", 500_000, HoldSample},
		{"older than what the first had", first, "b", 489_999, StoreSample},
		{"the elected one while what was held is stored", taking, "b", 600_001, HoldSample},
		{"the one before while what was held is stored", taking, "a", 600_001, HoldSample},
		{"late, in its own span", taking, "a", 600_000, StoreSample},
		{"the elected one", settled, "b", 600_001, StoreSample},
		{"the margin before its span", settled, "b", 595_000, HoldSample},
		{"covered by the one before", settled, "b", 590_000, DropSample},
		{"a third one, covered", settled, "c", 590_000, DropSample},
		{"a third one", settled, "c", 600_001, HoldSample},
		{"back again", back, "a", 700_001, StoreSample},
		{"in a span between its own", back, "a", 650_000, DropSample},
		{"in its own span between others", back, "b", 650_000, StoreSample},
	} {
		require.Equal(t, c.want, c.choice.disposition(c.replica, c.t, margin), "%s: %s at %d", c.name, c.replica, c.t)
	}
}

func TestSpansAreBounded(t *testing.T) {
	c := firstElection("a", 0, time.Second, time.UnixMilli(0))
	for i := range 100 {
		c = c.withWatermark(progress{int64(i) * 1000, int64(i) * 1000, math.MaxInt64}, time.Second)
		c = c.withTerm(candidate{replica: []string{"a", "b"}[i%2]}, math.MaxInt64, "", time.UnixMilli(0))
	}
	require.Len(t, c.Terms, maxTerms)
	require.Equal(t, StoreSample, c.disposition("a", 1, time.Second), "nobody is known to cover what is older")
}
