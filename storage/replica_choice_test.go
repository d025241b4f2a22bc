package storage

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWayOfAReplicasSample(t *testing.T) {
	now, margin := time.UnixMilli(1_000_000), 10*time.Second
	first := firstChoice("a", 500_000, margin, now) // a from 489,999
	flushed := first.flushed(600_000, math.MaxInt64, margin)
	taking := flushed.elect("b", 2_000_000, "writer", now)
	settled := taking
	settled.Taking = ""
	back := settled.flushed(700_000, math.MaxInt64, margin)
	back = back.elect("a", 2_000_000, "", now)
	for _, c := range []struct {
		name    string
		choice  choice
		replica string
		t       int64
		want    way
	}{
		{"the elected one", first, "a", 500_000, wayStore},
		{"another one", first, "b", 500_000, wayHold},
		{"older than what the first had", first, "b", 489_999, wayStore},
		{"the elected one while what was held is stored", taking, "b", 600_001, wayHold},
		{"the one before while what was held is stored", taking, "a", 600_001, wayHold},
		{"late, in its own span", taking, "a", 600_000, wayStore},
		{"the elected one", settled, "b", 600_001, wayStore},
		{"the margin before its span", settled, "b", 595_000, wayHold},
		{"covered by the one before", settled, "b", 590_000, wayDrop},
		{"a third one, covered", settled, "c", 590_000, wayDrop},
		{"a third one", settled, "c", 600_001, wayHold},
		{"back again", back, "a", 700_001, wayStore},
		{"in a span between its own", back, "a", 650_000, wayDrop},
		{"in its own span between others", back, "b", 650_000, wayStore},
	} {
		require.Equal(t, c.want, c.choice.way(c.replica, c.t, margin), "%s: %s at %d", c.name, c.replica, c.t)
	}
}

func TestSpansAreBounded(t *testing.T) {
	c := firstChoice("a", 0, time.Second, time.UnixMilli(0))
	for i := range 100 {
		c = c.flushed(int64(i)*1000, math.MaxInt64, time.Second)
		c = c.elect([]string{"a", "b"}[i%2], math.MaxInt64, "", time.UnixMilli(0))
	}
	require.Len(t, c.Spans, maxSpans)
	require.Equal(t, wayStore, c.way("a", 1, time.Second), "nobody is known to cover what is older")
}
