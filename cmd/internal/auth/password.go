package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"runtime"
	"sync"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/singleflight"
)

// Limits of password checks. bcrypt is slow on purpose, and clients that guess passwords must not block others.
const (
	// maxWaiting is the max number of different passwords that wait to be checked. maxOfHost is the max number of these
	// from one address.
	maxWaiting = 64
	maxOfHost  = 8
	// maxGood and maxBad are the sizes of the caches of accepted and rejected passwords. The caches are separate, so
	// that guesses can't evict accepted passwords.
	maxGood = 4096
	maxBad  = 4096
)

// passwordChecker checks passwords, a few at a time, and caches the results. The cache contains no passwords, only
// keyed hashes of them. The key exists only in memory.
type passwordChecker struct {
	key     [sha256.Size]byte
	slots   chan struct{}
	flights singleflight.Group
	// compare is bcrypt.CompareHashAndPassword, except in tests.
	compare func(hash, password []byte) error

	mu        sync.Mutex
	good, bad map[passwordMAC]struct{}
	waiting   int
	ofHost    map[string]int
}

type passwordMAC [sha256.Size]byte

func newPasswords() *passwordChecker {
	p := &passwordChecker{
		slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4)), compare: bcrypt.CompareHashAndPassword,
		good: map[passwordMAC]struct{}{}, bad: map[passwordMAC]struct{}{}, ofHost: map[string]int{},
	}
	_, _ = rand.Read(p.key[:]) // rand.Read never fails.
	return p
}

// checkPassword reports whether a password matches a bcrypt hash. Identical concurrent checks are done once.
func (p *passwordChecker) checkPassword(ctx context.Context, host, hash, password string) (bool, error) {
	h := hmac.New(sha256.New, p.key[:])
	h.Write([]byte(hash)) // A hash is always 60 bytes.
	h.Write([]byte(password))
	key := passwordMAC(h.Sum(nil))
	if ok, known := p.cachedResult(key); known {
		return ok, nil
	}
	answer := p.flights.DoChan(string(key[:]), func() (any, error) {
		if ok, known := p.cachedResult(key); known { // An identical check may have just finished.
			return ok, nil
		}
		if !p.enterQueue(host) {
			return false, ErrBusy
		}
		defer p.leaveQueue(host)
		p.slots <- struct{}{}
		ok := p.compare([]byte(hash), []byte(password)) == nil
		<-p.slots
		p.cacheResult(key, ok)
		return ok, nil
	})
	select {
	case a := <-answer:
		return a.Val.(bool), a.Err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (p *passwordChecker) cachedResult(key passwordMAC) (ok, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.good[key]; ok {
		return true, true
	}
	_, known = p.bad[key]
	return false, known
}

func (p *passwordChecker) cacheResult(key passwordMAC, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, limit := p.bad, maxBad
	if ok {
		m, limit = p.good, maxGood
	}
	for old := range m { // Evict any entry: map iteration order is random.
		if len(m) < limit {
			break
		}
		delete(m, old)
	}
	m[key] = struct{}{}
}

// enterQueue adds a check to the waiting checks. It returns false if the address has reached its limit.
func (p *passwordChecker) enterQueue(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting >= maxWaiting || p.ofHost[host] >= maxOfHost {
		return false
	}
	p.waiting++
	p.ofHost[host]++
	return true
}

func (p *passwordChecker) leaveQueue(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	if p.ofHost[host]--; p.ofHost[host] == 0 {
		delete(p.ofHost, host)
	}
}
