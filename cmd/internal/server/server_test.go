package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/cassia-db/cassia/cmd/internal/webconfig"
)

var quietLogger = slog.New(slog.DiscardHandler)

// now is a constant clock.
func now() time.Time { return time.Unix(1_700_000_000, 0) }

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, err = Listen([]string{"127.0.0.1:0", taken.Addr().String()}, nil, "", answerTenant, noMetrics(), quietLogger)
	require.EqualError(t, err, "--web.listen-address="+taken.Addr().String()+
		": the address is in use by another program; stop it, or choose another port")
	_, err = Listen([]string{"999.0.0.1:1"}, nil, "", answerTenant, noMetrics(), quietLogger)
	require.ErrorContains(t, err, "--web.listen-address=999.0.0.1:1: ")
}

// TestStopDrainsRequests checks that a request in progress when the server stops gets its complete response, and that
// later requests are rejected.
func TestStopDrainsRequests(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "whole")
	})
	s, err := Listen([]string{"127.0.0.1:0", "127.0.0.1:0"}, nil, "", h, noMetrics(), quietLogger)
	require.NoError(t, err)
	require.Len(t, s.Addresses(), 2)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()

	answers := make(chan string, 1)
	go func() {
		answer, err := http.Get("http://" + s.Addresses()[1])
		if err != nil {
			answers <- err.Error()
			return
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		answers <- fmt.Sprint(string(body), err)
	}()
	<-begun
	stop()
	// Wait until the listeners are closed. stop doesn't wait for that.
	for _, address := range s.Addresses() {
		require.Eventually(t, func() bool {
			c, err := net.Dial("tcp", address)
			if err == nil {
				_ = c.Close()
			}
			return err != nil
		}, drainTimeout, drainTimeout/1000)
	}
	select {
	case err := <-served:
		t.Fatalf("served ended before the request did: %v", err)
	default:
	}
	close(finish)
	require.Equal(t, "whole<nil>", <-answers)
	require.NoError(t, <-served)
}

func TestBasicAuth(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "web.yml")
	require.NoError(t, os.WriteFile(file, []byte("basic_auth_users:\n  ada: "+string(hash)+"\n"), 0o600))
	web, err := webconfig.Open(file, false)
	require.NoError(t, err)
	s, err := Listen(
		[]string{"127.0.0.1:0", "127.0.0.1:0"}, web, "", NewHandler(testOptions()), noMetrics(), quietLogger,
	)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	for _, address := range s.Addresses() {
		for password, want := range map[string]int{"secret": http.StatusOK, "guess": http.StatusUnauthorized} {
			r, err := http.NewRequest(http.MethodGet, "http://"+address+"/-/healthy", nil)
			require.NoError(t, err)
			r.SetBasicAuth("ada", password)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, want, answer.StatusCode)
		}
	}
	stop()
	require.NoError(t, <-served)
}
