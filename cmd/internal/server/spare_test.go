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

// TestAnswersWithoutFileHandles sends requests to a process that can't open more files. Idle connections use most of
// the process' file handles. Whenever a handle is released, another part of the process takes it. Each request must be
// answered anyway.
func TestAnswersWithoutFileHandles(t *testing.T) {
	const role = "CASSIA_TEST_NO_HANDLES"
	if os.Getenv(role) != "" {
		serveWithoutHandles()
		return
	}
	for _, idle := range []int{0, 10} {
		t.Run(fmt.Sprint(idle, " idle connections"), func(t *testing.T) {
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
			lines := bufio.NewReader(out)
			line := func() string {
				text, err := lines.ReadString('\n')
				require.NoError(t, err)
				return strings.TrimSpace(text)
			}
			address := line()
			ask := func(client *http.Client) {
				t.Helper()
				answer, err := client.Get("http://" + address)
				require.NoError(t, err)
				text, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, "well", string(text))
			}
			for range idle {
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				ask(&http.Client{Transport: transport})
			}
			for range idle + 5 {
				_, err := io.WriteString(in, "fill\n")
				require.NoError(t, err)
				require.Equal(t, "full", line())
				ask(&http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}})
			}
		})
	}
}

// serveWithoutHandles prints its address and serves requests until its standard input ends. For each line of the input,
// it opens files until no file handle is left.
func serveWithoutHandles() {
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	s, err := Listen([]string{"127.0.0.1:0"}, nil, "",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") }),
		noMetrics(), slog.New(slog.DiscardHandler))
	must(err)
	go func() { _ = s.servers[0].Serve(s.listeners[0]) }()
	fmt.Println(s.Addresses()[0])
	var open []*os.File
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		time.Sleep(100 * time.Millisecond) // By now the connection of the last request is closed.
		for err = nil; err == nil; {
			var f *os.File
			if f, err = os.Open(os.DevNull); err == nil {
				open = append(open, f)
			}
		}
		fmt.Println("full")
	}
	for _, f := range open {
		must(f.Close())
	}
}
