package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnswersWithoutFileHandles asks a server whose process can't open any more files.
func TestAnswersWithoutFileHandles(t *testing.T) {
	const role = "CASSIA_TEST_NO_HANDLES"
	if os.Getenv(role) != "" {
		serveWithoutHandles()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAnswersWithoutFileHandles$")
	cmd.Env = append(os.Environ(), role+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 5 {
		answer, err := client.Get("http://" + strings.TrimSpace(address))
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "well", string(text))
	}
}

// serveWithoutHandles prints its address, and answers until its input ends.
func serveWithoutHandles() {
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	s, err := Listen([]string{"127.0.0.1:0"}, nil, "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") }),
		noMetrics(), slog.New(slog.DiscardHandler))
	must(err)
	go func() { _ = s.servers[0].Serve(s.listeners[0]) }()
	var open []*os.File
	for err == nil {
		var f *os.File
		if f, err = os.Open(os.DevNull); err == nil {
			open = append(open, f)
		}
	}
	fmt.Println(s.Addresses()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, f := range open {
		must(f.Close())
	}
}
