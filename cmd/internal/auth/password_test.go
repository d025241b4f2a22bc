package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waitLong is the max time to wait for a condition, and waitShort the interval between checks.
const (
	waitLong  = time.Minute
	waitShort = time.Millisecond
)

const someHash = "$2a$04$012345678901234567890u012345678901234567890123456789."

// slowPasswords returns passwords that accept only "right" and block every check until release is called.
func slowPasswords() (p *passwordChecker, running, most, checks *atomic.Int32, release func()) {
	p = newPasswords()
	running, most, checks = new(atomic.Int32), new(atomic.Int32), new(atomic.Int32)
	hold := make(chan struct{})
	p.compare = func(_, password []byte) error {
		now := running.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		checks.Add(1)
		<-hold
		running.Add(-1)
		if bytes.Equal(password, []byte("right")) {
			return nil
		}
		return errors.New("mismatch")
	}
	return p, running, most, checks, sync.OnceFunc(func() { close(hold) })
}

// TestGuessesAreBounded checks that a flood of guesses uses a limited part of the CPU and of the queue. During the
// flood, a user is accepted if the user's password is cached or if the user connects from another address.
func TestGuessesAreBounded(t *testing.T) {
	p, running, most, checks, release := slowPasswords()
	defer release()
	known := passwordMAC{}
	{ // This check passes before the flood.
		early := newPasswords()
		early.key = p.key
		early.compare = func(_, _ []byte) error { return nil }
		ok, err := early.checkPassword(t.Context(), "1.1.1.1", someHash, "right")
		require.True(t, ok)
		require.NoError(t, err)
		for k := range early.good {
			known = k
		}
	}
	p.good[known] = struct{}{}

	var busy, wrong atomic.Int32
	var flood sync.WaitGroup
	for i := range 500 {
		flood.Go(func() {
			switch ok, err := p.checkPassword(t.Context(), "6.6.6.6", someHash, fmt.Sprint("guess", i)); {
			case errors.Is(err, ErrBusy):
				busy.Add(1)
			case err == nil && !ok:
				wrong.Add(1)
			default:
				t.Error(ok, err)
			}
		})
	}
	require.Eventually(t, func() bool { return busy.Load() == 500-maxOfHost }, waitLong, waitShort,
		"all but a few are turned away at once")
	require.Eventually(t, func() bool { return running.Load() == int32(cap(p.slots)) }, waitLong, waitShort)

	ok, err := p.checkPassword(t.Context(), "6.6.6.6", someHash, "right")
	require.True(t, ok, "who was let in before needs no check")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.checkPassword(ctx, "2.2.2.2", someHash, "slow")
	require.ErrorIs(t, err, context.Canceled, "nobody waits longer than the request does")

	fresh := make(chan bool, 1)
	go func() {
		ok, err := p.checkPassword(t.Context(), "2.2.2.2", someHash+" ", "right")
		fresh <- ok && err == nil
	}()
	release()
	flood.Wait()
	require.True(t, <-fresh)
	require.EqualValues(t, maxOfHost, wrong.Load())
	require.LessOrEqual(t, most.Load(), int32(cap(p.slots)))
	require.LessOrEqual(t, checks.Load(), int32(maxOfHost+2))
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.waiting == 0 && len(p.ofHost) == 0
	}, waitLong, waitShort, "every place is given back")
}

func TestEqualChecksAreOne(t *testing.T) {
	p, running, _, checks, release := slowPasswords()
	defer release()
	var all sync.WaitGroup
	var let atomic.Int32
	for range 100 { // Prometheus starts all its senders at once.
		all.Go(func() {
			if ok, err := p.checkPassword(t.Context(), "1.1.1.1", someHash, "right"); ok && err == nil {
				let.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return running.Load() == 1 }, waitLong, waitShort)
	release()
	all.Wait()
	require.EqualValues(t, 100, let.Load())
	require.EqualValues(t, 1, checks.Load())
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	p := newPasswords()
	p.compare = func(_, password []byte) error {
		if password[0] == 'r' {
			return nil
		}
		return errors.New("mismatch")
	}
	for i := range 10 {
		ok, err := p.checkPassword(t.Context(), "h", someHash, fmt.Sprint("r", i))
		require.True(t, ok)
		require.NoError(t, err)
	}
	for i := range maxBad + 100 {
		ok, err := p.checkPassword(t.Context(), "h", someHash, fmt.Sprint("w", i))
		require.False(t, ok)
		require.NoError(t, err)
	}
	require.Len(t, p.bad, maxBad)
	require.Len(t, p.good, 10, "guesses push no right answer out")
	for i := range maxGood + 100 {
		p.cacheResult(passwordMAC{1, byte(i), byte(i >> 8)}, true)
	}
	require.Len(t, p.good, maxGood)
}
