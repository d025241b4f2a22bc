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

// patient is a transport for multiple processes. If a request to one process fails, it sends the request to the next
// process, and so on for the duration patience.
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

// RoundTrip implements http.RoundTripper, for requests whose body can be read again.
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
			text, _ := io.ReadAll(io.LimitReader(answer.Body, 500)) // The text is only logged.
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

// note records the result of an attempt. why is the reason for its failure, or "" if it succeeded. over is set if the
// request isn't retried any more.
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
	// If no other request has switched to the next process yet, switch to it. This also happens after a success.
	if p.at == at {
		p.at = (at + 1) % len(p.addresses)
	}
}

// counts returns the numbers of attempts, of failed attempts and of requests that were given up, and the duration of
// the slowest request including its retries.
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

// waitLogged waits until a process has logged a line that contains all of the given words, and returns the line.
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

// requireSound runs cassia check and requires that all samples are sealed and there are no problems.
func requireSound(ctx context.Context, t *testing.T, binary string, flags []string) {
	t.Helper()
	out, err := exec.CommandContext(ctx, binary, append([]string{"check"}, flags...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), " 0 problems")
	t.Logf("cassia check: %s", out)
}
