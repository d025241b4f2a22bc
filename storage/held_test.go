package storage

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

func FuzzParseHeld(f *testing.F) {
	b := &heldBuilder{}
	tenant := &headTenant{name: "t"}
	for i := range 3 {
		b.add(&entry{series: &Series{tenantMetric: &tenantMetric{tenant: tenant}, labels: labels.FromStrings("__name__", "m", "i", string(rune('a'+i)))}, t: int64(i) * 1000, v: 0x3ff0000000000000})
	}
	b.cut()
	f.Add(b.values[0])
	f.Fuzz(func(t *testing.T, value []byte) {
		v, err := parseHeld(value)
		if err != nil {
			require.ErrorIs(t, err, errBadHeld)
			return
		}
		require.LessOrEqual(t, v.minT, v.maxT)
		if _, err := v.unpack(); err != nil {
			require.ErrorIs(t, err, errBadHeld)
		}
		_, _ = heldWords(value) // It mustn't panic.
	})
}

// TestHeldReach has rows say how far they reach: not by what is ahead, unless all is.
func TestHeldReach(t *testing.T) {
	const now, limit = 1_000_000, 1_030_000
	tenant := &headTenant{name: "t"}
	series := &Series{tenantMetric: &tenantMetric{tenant: tenant}, labels: labels.FromStrings("__name__", "m")}
	for name, c := range map[string]struct {
		times []int64
		want  int64
	}{
		"behind":         {[]int64{990_000, 980_000}, 990_000},
		"a little ahead": {[]int64{990_000, 1_030_000}, 1_030_000},
		"one ahead":      {[]int64{990_000, 1_030_001}, 990_000},
		"all ahead":      {[]int64{1_030_001, 1_600_000}, now},
		"exemplars":      {nil, math.MinInt64},
	} {
		b := &heldBuilder{fresh: reach{now: now, limit: limit, t: math.MinInt64}}
		for _, at := range c.times {
			b.add(&entry{series: series, t: at})
		}
		b.addExemplar(&exemplarEntry{series: series, t: 980_000, data: []byte{0}})
		b.cut()
		v, err := parseHeld(b.values[0])
		require.NoError(t, err, name)
		require.Equal(t, c.want, v.reach, name)
		require.Equal(t, int64(980_000), v.minT, name)
	}
}

// TestHeldOfVersion1 reads a row of an older release, which doesn't know how far it reaches.
func TestHeldOfVersion1(t *testing.T) {
	b := &heldBuilder{}
	b.add(&entry{series: &Series{tenantMetric: &tenantMetric{tenant: &headTenant{name: "t"}}, labels: labels.FromStrings("__name__", "m")}, t: 1000, v: 0x3ff0000000000000})
	b.cut()
	now, err := parseHeld(b.values[0])
	require.NoError(t, err)
	row := []byte{1, 0, 0, 0, 0}
	row = binary.AppendVarint(row, 1000)
	row = binary.AppendUvarint(row, 500)
	row = binary.AppendUvarint(row, 1)
	row = append(row, now.blob...)
	binary.LittleEndian.PutUint32(row[1:], crc32.Checksum(row[heldHeader:], castagnoli))
	v, err := parseHeld(row)
	require.NoError(t, err)
	require.Equal(t, heldValue{minT: 1000, maxT: 1500, reach: 1000, samples: 1, blob: now.blob}, v)
	_, err = v.unpack()
	require.NoError(t, err)
}
