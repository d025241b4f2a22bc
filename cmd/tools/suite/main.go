// Suite runs `go test` and prints a summary: one line with the duration per package, as soon as the package ends; the
// output of failed tests, not mixed with the output of concurrent tests; and at the end the skipped tests with their
// reasons, the slowest tests, and the total duration. `make test` runs it:
//
//	bin/tools/suite [-skips=fail] [-slowest 10] [-events FILE] -- -p 4 -parallel 8 ./...
//
// The arguments after -- are passed to `go test`. Suite exits with status 1 if a test failed. With -skips=fail, Suite
// also exits with status 1 if a test was skipped that may not be skipped, see allowed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	skips := flag.String("skips", "tell", "whether skipped tests make the run fail: tell or fail")
	slowest := flag.Int("slowest", 5, "how many of the slowest tests to name")
	events := flag.String("events", "", "a file for what go test -json prints")
	flag.Parse()
	if *skips != "tell" && *skips != "fail" {
		fmt.Fprintf(os.Stderr, "suite: -skips is tell or fail, not %q\n", *skips)
		os.Exit(2)
	}
	ok, err := run(flag.Args(), *events, func(r *report, took time.Duration) bool {
		return r.end(took, *slowest, *skips == "fail")
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run runs go test. When the user presses Ctrl-C, the terminal interrupts all running processes, and the tests that
// have ended are reported. SIGTERM is forwarded as an interrupt.
func run(args []string, events string, end func(*report, time.Duration) bool) (ok bool, err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = syscall.Kill(0, syscall.SIGINT) // the process group of this process
			}
		}
	}()
	cmd := exec.Command(goTool(), append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return false, err
	}
	var from io.Reader = out
	if events != "" {
		file, err := os.Create(events)
		if err != nil {
			return false, err
		}
		defer file.Close()
		from = io.TeeReader(out, file)
	}
	r := newReport(os.Stdout)
	if err := r.read(from); err != nil {
		return false, err
	}
	failed := cmd.Wait() // the error has no details
	return end(r, time.Since(began)) && failed == nil, nil
}

// goTool returns the path of the go command with which this program was built.
func goTool() string {
	if tool := os.Getenv("GO"); tool != "" {
		return tool
	}
	return "go"
}
