package storage

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

func FuzzParseHeld(f *testing.F) {
	b := &heldBuilder{}
	tenant := &headTenant{name: "t"}
	for i := range 3 {
		b.add(&entry{series: &Series{tenant: tenant, labels: labels.FromStrings("__name__", "m", "i", string(rune('a'+i)))}, t: int64(i) * 1000, v: 0x3ff0000000000000})
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
