// Broken breaks the rules of the storage code one at a time, each in a copy of a file, and reports which test detected
// the change and how long that took:
//
//	bin/tools/broken -only clock
//
// (or `make broken-rules`, which takes about ten minutes). If a broken rule isn't detected, a test is missing, and
// Broken exits with status 1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "only rules with this in their names")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "cassia-broken-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = run(ctx, dir, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "broken:", err)
		os.Exit(1)
	}
}

// errUnnoticed means that all tests passed although a rule was broken.
var errUnnoticed = errors.New("nobody noticed")

func run(ctx context.Context, dir, only string) error {
	var failed []string
	for _, r := range rules {
		if !strings.Contains(r.name, only) {
			continue
		}
		by, took, err := r.noticed(ctx, dir)
		if err != nil && !errors.Is(err, errUnnoticed) {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if err != nil {
			by = err.Error()
			failed = append(failed, r.name)
		}
		fmt.Printf("%-70s %5.1f s  %s\n", r.name, took.Seconds(), by)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%w: %s", errUnnoticed, strings.Join(failed, "; "))
	}
	return nil
}

// broken returns the path of the rule's file, and its contents with the rule broken.
func (r *rule) broken(root string) (file string, text []byte, err error) {
	file = filepath.Join(root, filepath.FromSlash(r.file))
	was, err := os.ReadFile(file)
	if err != nil {
		return file, nil, err
	}
	if n := strings.Count(string(was), r.from); n != 1 {
		return file, nil, fmt.Errorf("%s has %d times what is to be replaced: %q", r.file, n, r.from)
	}
	return file, []byte(strings.Replace(string(was), r.from, r.to, 1)), nil
}

// folder returns the folder that contains all of the rule's tests: the folder of the file, or the folder storage.
func (r *rule) folder(root string) (string, error) {
	for _, folder := range []string{path.Dir(r.file), "storage"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
		if err != nil {
			return "", err
		}
		var all []byte
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			all = append(all, text...)
		}
		hasAll := true
		for test := range strings.SplitSeq(r.tests, "|") {
			declared, err := regexp.Compile(`(?m)^func ` + test + `\(t \*testing\.T\)`)
			if err != nil {
				return "", err
			}
			hasAll = hasAll && declared.Match(all)
		}
		if hasAll {
			return folder, nil
		}
	}
	return "", fmt.Errorf("no folder has all of %s", r.tests)
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// noticed runs the rule's tests with the broken file. It returns the first test that failed, and the time until the
// tests ended. If no test fails, it returns errUnnoticed.
func (r *rule) noticed(ctx context.Context, dir string) (by string, took time.Duration, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", 0, err
	}
	file, text, err := r.broken(root)
	if err != nil {
		return "", 0, err
	}
	folder, err := r.folder(root)
	if err != nil {
		return "", 0, err
	}
	copied, overlay, binary := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "broken.test")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: copied}})
	if err != nil {
		return "", 0, err
	}
	if err := errors.Join(os.WriteFile(copied, text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", 0, err
	}
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", binary, "./"+folder).CombinedOutput(); err != nil {
		return "", 0, fmt.Errorf("%w\n%s", err, out)
	}
	test := exec.CommandContext(ctx, binary, "-test.failfast", "-test.timeout", "5m", "-test.run", "^("+r.tests+")$")
	test.Dir = filepath.Join(root, filepath.FromSlash(folder))
	begun := time.Now()
	out, err := test.CombinedOutput()
	took = time.Since(begun)
	switch {
	case ctx.Err() != nil:
		return "", took, ctx.Err()
	case err == nil:
		return "", took, errUnnoticed
	}
	if found := failedTest.FindSubmatch(out); found != nil {
		return string(found[1]), took, nil
	}
	return "", took, fmt.Errorf("it failed otherwise: %w\n%s", err, out)
}
