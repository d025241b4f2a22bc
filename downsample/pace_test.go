package downsample

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
)

func TestRest(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		worked, lag time.Duration
		share       float64
		want        time.Duration
	}{
		"half":                               {s, 0, 0.5, s},
		"a quarter":                          {s, 0, 0.25, 3 * s},
		"all":                                {s, 0, 1, 0},
		"nothing done":                       {0, 0, 0.5, 0},
		"a clock that was set back":          {-s, 0, 0.5, 0},
		"up to an hour it makes no haste":    {s, time.Hour, 0.5, s},
		"half of the way to four: 0.7":       {7 * s, 150 * time.Minute, 0.5, 3 * s},
		"from four hours on least":           {9 * s, 4 * time.Hour, 0.5, s},
		"for ever so":                        {9 * s, 1000 * time.Hour, 0.1, s},
		"who may do more does":               {95 * s, 4 * time.Hour, 0.95, 5 * s},
		"a slow engine":                      {time.Hour, 0, 0.5, maxRest},
		"a lag below zero, as clocks differ": {s, -time.Hour, 0.5, s},
	} {
		require.InDelta(t, c.want, rest(c.worked, c.lag, c.share), float64(time.Millisecond), name)
	}
	// A longer lag never leads to a longer rest.
	last := rest(s, 0, 0.3)
	for lag := time.Duration(0); lag < 6*time.Hour; lag += time.Minute {
		now := rest(s, lag, 0.3)
		require.LessOrEqual(t, now, last, lag)
		require.Positive(t, now)
		last = now
	}
}

// TestPacer checks in a synctest bubble that rests have the right duration and end with the context.
func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(time.Now, 0.25, 2)
		h := p.workers[0]
		none := func() time.Duration { return 0 }
		began := time.Now()
		for range 10 {
			h.work(t.Context(), "nothing", none, func(func()) { time.Sleep(time.Millisecond) })
		}
		require.Equal(t, 10*time.Millisecond+24*time.Millisecond, time.Since(began), "small rests are saved up")
		h.work(t.Context(), "something", none, func(func()) {
			time.Sleep(time.Second)
			what, took := p.longest()
			require.Equal(t, "something", what)
			require.Equal(t, time.Second, took)
		})
		what, took := p.longest()
		require.Empty(t, what)
		require.Zero(t, took)
		worked, rested := p.spent()
		require.Equal(t, 1010*time.Millisecond, worked)
		require.Equal(t, 3030*time.Millisecond, rested)

		began = time.Now()
		h.work(t.Context(), "in parts", none, func(pause func()) {
			for range 3 {
				time.Sleep(time.Second)
				pause()
				require.Positive(t, time.Since(began))
			}
		})
		require.Equal(t, 12*time.Second, time.Since(began))

		first, second := make(chan struct{}), make(chan struct{})
		go h.work(t.Context(), "first", none, func(func()) { <-first })
		time.Sleep(time.Second)
		go p.workers[1].work(t.Context(), "second", none, func(func()) { <-second })
		time.Sleep(time.Second)
		what, took = p.longest()
		require.Equal(t, "first", what)
		require.Equal(t, 2*time.Second, took)
		close(first)
		synctest.Wait()
		what, took = p.longest()
		require.Equal(t, "second", what)
		require.Equal(t, time.Second, took)
		close(second)
		time.Sleep(time.Minute)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		began = time.Now()
		h.work(ctx, "more", none, func(func()) { time.Sleep(time.Second) })
		require.Equal(t, 2*time.Second, time.Since(began), "whoever stops isn't kept waiting")
	})
}

// TestRoundsRest runs a whole loop in a synctest bubble, in which sealing takes no time. It checks that rounds start
// regularly, and that slots are sealed once they have settled.
func TestRoundsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(so *storage.Options, o *Options) {
			so.Now, o.Now, o.Share = time.Now, time.Now, 0.5
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.loop.Run(ctx); close(ended) }()
		time.Sleep(time.Minute) // midnight, which is a slot's inclusive end
		r.write(time.Now(), 1)
		time.Sleep(2*time.Hour + 13*time.Minute)
		synctest.Wait()
		require.Zero(t, r.loop.Status(t.Context()).SealedSlots)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		s := r.loop.Status(t.Context())
		require.Equal(t, 4, s.SealedSlots)
		require.InDelta(t, 138, s.Rounds, 1, "one a minute")
		cancel()
		<-ended
	})
}
