package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// patient is an http.RoundTripper for multiple processes. It sends a request to one of them, and after an error retries
// it at the next one, until its patience has passed.
type patient struct {
	addresses []string
	patience  time.Duration
	inner     http.Transport

	mu                    sync.Mutex
	at                    int
	tries, failed, gaveUp int
	slowest               time.Duration
	last                  string
}

func newPatient(patience time.Duration, addresses ...string) *patient {
	return &patient{addresses: addresses, patience: patience}
}

// RoundTrip implements http.RoundTripper. A request with a body must have GetBody, so that it can be sent again.
func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	for {
		at := p.place()
		again := r.Clone(r.Context())
		again.URL.Host = p.addresses[at]
		if r.GetBody != nil {
			var err error
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		answer, err := p.inner.RoundTrip(again)
		if err == nil && answer.StatusCode < http.StatusInternalServerError {
			p.note(at, began, "", false)
			return answer, nil
		}
		if r.Context().Err() != nil {
			return answer, err
		}
		why, over := fmt.Sprint(err), time.Since(began) > p.patience
		if err == nil {
			why = answer.Status
		}
		if err == nil && !over {
			text, _ := io.ReadAll(io.LimitReader(answer.Body, 500)) // it is only logged
			answer.Body.Close()
			why += ": " + string(text)
		}
		p.note(at, began, why, over)
		if over {
			return answer, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *patient) place() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	return p.at
}

// note records the result of an attempt at a process. why is the error, "" if the attempt succeeded. over means that
// the request is given up.
func (p *patient) note(at int, began time.Time, why string, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why != "" {
		p.failed++
		p.last = why
	}
	if over {
		p.gaveUp++
	}
	if why == "" || over {
		p.slowest = max(p.slowest, time.Since(began).Round(time.Millisecond))
	}
	// The next request is sent to the next process, even after a success. If p.at has changed, another request has
	// moved on already.
	if p.at == at {
		p.at = (at + 1) % len(p.addresses)
	}
}

// counts returns the number of attempts, the number of failed attempts, the number of requests that were given up, and
// the duration of the slowest request including its retries.
func (p *patient) counts() (tries, failed, gaveUp int, slowest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tries, p.failed, p.gaveUp, p.slowest
}

func (p *patient) lastFailure() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == "" {
		return "there was none"
	}
	return p.last
}

// waitLogged waits until the log of a process has a line that contains all of the words, and returns the line.
func waitLogged(t *testing.T, p *promrig.Process, words ...string) (line string) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(p.Log)
		if err != nil {
			return false
		}
		for line = range strings.Lines(string(text)) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return true
			}
		}
		return false
	}, cassiatest.Patience, 50*time.Millisecond, "the log never had a line with %q", words)
	return line
}

// requireSound requires that cassia check finds no problems.
func requireSound(ctx context.Context, t *testing.T, binary string, flags []string) {
	t.Helper()
	out, err := exec.CommandContext(ctx, binary, append([]string{"check"}, flags...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), " 0 problems")
	t.Logf("cassia check: %s", out)
}
