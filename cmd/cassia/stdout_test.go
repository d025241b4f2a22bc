package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// printedTo runs a command with its standard output directed to a file. It returns the standard error and the exit
// status. The test must not run in parallel with others.
func printedTo(t *testing.T, path string, args ...string) (stderr string, status int) {
	t.Helper()
	out, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer out.Close()
	old := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = old }()
	var errs bytes.Buffer
	status = run(args, io.Writer(&errs))
	return errs.String(), status
}

// TestFullStandardOutput checks that a command fails with a one-line error if its output can't be written.
func TestFullStandardOutput(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	dir, to := cassiatest.SealedDirectory(t, time.Now().Truncate(time.Hour)), filepath.Join(t.TempDir(), "backups")
	_, errs, status := runPrinted(t, "", "backup", "--storage.path="+dir, "--to="+to)
	require.Zero(t, status, errs)
	for _, args := range [][]string{
		{"check", "--storage.path=" + dir},
		{"check", "--storage.path=" + dir, "--json"},
		{"inspect", "--storage.path=" + dir},
		{"doctor", "--storage.path=" + dir},
		{"retention", "--storage.path=" + dir, "--retention.raw=30d"},
		{"downsample", "--storage.path=" + dir, "--retention.raw=30d"},
		{"export", "--storage.path=" + dir, "--format=csv"},
		{"export", "--storage.path=" + dir, "--format=openmetrics"},
		{"export", "--storage.path=" + dir, "--format=jsonl"},
		{"backup", "list", "--to=" + to},
		{"backup", "list", "--to=" + to, "--json"},
		{"backup", "verify", "--to=" + to},
		{"backup", "--storage.path=" + dir, "--to=" + to},
		{"restore", "--storage.path=" + filepath.Join(t.TempDir(), "a"), "--from=" + to},
		{"restore", "--damaged", "--storage.path=" + dir},
		{"version"},
		{"man"},
		{"completion", "bash"},
		{"schema", "print"},
	} {
		stderr, status := printedTo(t, "/dev/full", args...)
		require.Equal(t, 1, status, "%s: %s", args, stderr)
		lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
		last := lines[len(lines)-1]
		require.Regexp(t, `^cassia: .*writing to the standard output: no space left on device$`, last, args)
		require.Equal(t, 1, strings.Count(stderr, "no space left on device"), "%s: %s", args, stderr)
	}
}

// TestOutputOfHelpThatCannotBeWritten checks that cassia exits with status 1 and a one-line error if it can't print
// help or its version. It runs the test binary as a child, because kingpin exits the process.
func TestOutputOfHelpThatCannotBeWritten(t *testing.T) {
	binary := os.Getenv("CASSIA_TEST_STDOUT")
	if binary == "" {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		defer full.Close()
		for _, args := range []string{"--help", "--version", "help", "help check", "help backups", "check --help"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutputOfHelpThatCannotBeWritten$")
			cmd.Env = append(os.Environ(), "CASSIA_TEST_STDOUT="+args)
			var stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = full, &stderr
			err := cmd.Run()
			exit := (*exec.ExitError)(nil)
			require.ErrorAs(t, err, &exit, args)
			require.Equal(t, 1, exit.ExitCode(), args)
			require.Equal(t, "cassia: writing to the standard output: no space left on device\n", stderr.String(), args)
		}
		return
	}
	status, _ := runCassia(strings.Fields(binary), os.Stderr)
	os.Exit(status)
}

// TestErrorsOfWritingAreKept checks that a command returns its first write error, once.
func TestErrorsOfWritingAreKept(t *testing.T) {
	closed, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	old := os.Stdout
	defer func() { os.Stdout = old }()
	os.Stdout = closed
	o := &standardOutput{}
	_, err = o.Write([]byte("a"))
	require.ErrorIs(t, err, os.ErrClosed)
	_, again := o.Write([]byte("b"))
	require.Same(t, err, again)
	require.Equal(t, err, o.withError(err), "it isn't added to itself")
	require.NoError(t, o.withError(nil))
	_, err = o.Write([]byte("c"))
	require.EqualError(t, o.withError(syscall.EIO), errors.Join(syscall.EIO, err).Error())
}
