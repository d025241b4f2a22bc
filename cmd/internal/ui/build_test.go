package ui

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// needModules skips a test if the page's packages aren't installed. `make ui-modules` installs them.
func needModules(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts Node")
	}
	if _, err := os.Stat("node_modules/.lock-of-last-install"); err != nil {
		t.Skip("the page's packages aren't installed: run `make ui-modules`, which needs Node 20")
	}
	installed, err := os.ReadFile("node_modules/.lock-of-last-install")
	require.NoError(t, err)
	locked, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	require.True(t, bytes.Equal(installed, locked), "package-lock.json has changed: run `make ui-modules`")
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// TestThePageIsBuiltFromItsSources builds the page and requires that the result is identical to the committed page.
func TestThePageIsBuiltFromItsSources(t *testing.T) {
	needModules(t)
	run(t, "node_modules/.bin/tsc", "--noEmit")
	built := t.TempDir()
	run(t, "node", "build.mjs", built)
	require.Equal(t, hashFiles(t, os.DirFS("dist")), hashFiles(t, os.DirFS(built)),
		"dist isn't what src makes: run `make ui` and commit dist")
}

// TestLogicOfThePage runs the page's unit tests, which cover numbers, times, addresses and completion.
func TestLogicOfThePage(t *testing.T) {
	needModules(t)
	run(t, "node", "units.mjs")
}

// hashFiles returns the hashes of the files in a folder, by name. Hashes are compared rather than contents, because a
// difference of contents would fill the screen.
func hashFiles(t *testing.T, dir fs.FS) map[string][sha256.Size]byte {
	t.Helper()
	all := map[string][sha256.Size]byte{}
	require.NoError(t, fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, name)
		all[name] = sha256.Sum256(content)
		return err
	}))
	require.NotEmpty(t, all)
	return all
}

func TestTheLockFileNamesNoHost(t *testing.T) {
	locked, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	require.NotContains(t, string(locked), `"resolved"`, "npm install with the .npmrc beside it leaves them out")
}
