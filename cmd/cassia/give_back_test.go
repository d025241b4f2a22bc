package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGiveBack checks when memory is returned, for heads that grow and shrink. held contains the head's size in MiB at
// each check, and want contains the indexes of the checks after which memory must have been returned.
func TestGiveBack(t *testing.T) {
	for name, c := range map[string]struct {
		held []int64
		want []int
	}{
		"sealed once":                      {[]int64{0, 100, 200, 10, 10, 10, 10, 10, 10, 10}, []int{5}},
		"sealed twice":                     {[]int64{200, 0, 0, 0, 0, 100, 1, 2, 3}, []int{3, 8}},
		"a head that is emptied and grows": {[]int64{100, 0, 0, 100, 0, 0, 100, 0, 0, 100}, nil},
		"a small one":                      {[]int64{60, 0, 0, 0, 0, 0}, nil},
		"less than half of it":             {[]int64{400, 250, 250, 250, 250}, nil},
		"in steps":                         {[]int64{400, 300, 200, 100, 50, 0, 0, 0}, []int{4}},
		"always empty":                     {[]int64{0, 0, 0, 0, 0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ticks, ended := make(chan time.Time), make(chan struct{})
			look := -1
			var freed []int
			go func() {
				defer close(ended)
				giveBack(ctx, ticks, func() int64 { look++; return c.held[look] << 20 }, func() {
					freed = append(freed, look)
				})
			}()
			for range c.held {
				ticks <- time.Time{}
			}
			// giveBack processes the last check before it sees that ctx has ended.
			cancel()
			<-ended
			require.Equal(t, c.want, freed)
		})
	}
}
