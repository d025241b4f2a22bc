// Suite runs `go test` and prints a summary for people: a line for each package as it ends, with its time; of a
// failed test its output, without that of tests beside it; in the end which tests were skipped and why, which took
// longest, and how long it all took. `make test` runs it:
//
//	bin/tools/suite [-skips=fail] [-slowest 10] [-events FILE] -- -p 4 -parallel 8 ./...
//
// What stands behind -- goes to `go test`. It ends with status 1 if anything failed, and with -skips=fail also if a test was
// skipped whose absence nobody has explained: see allowed.
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

// run runs go test. A terminal's interrupt reaches all that runs, and tests that have ended by then are reported; SIGTERM is
// passed on in the same way.
func run(args []string, events string, end func(*report, time.Duration) bool) (ok bool, err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = syscall.Kill(0, syscall.SIGINT) // the group of this process
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
	failed := cmd.Wait() // Its only information is that something failed.
	return end(r, time.Since(began)) && failed == nil, nil
}

// goTool is the go command that runs this program.
func goTool() string {
	if tool := os.Getenv("GO"); tool != "" {
		return tool
	}
	return "go"
}
