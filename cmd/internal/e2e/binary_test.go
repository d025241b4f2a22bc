package e2e

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// built is the path of the real program. It is built once, when the first test needs it, because linking takes longer
// than most tests.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// builtCassia returns the path of the real program. With -short, it skips the test.
func builtCassia(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the real program: leave -short out")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "cassia-test-"); built.err == nil {
			built.path, built.err = promrig.BuildCassia(built.dir, coverOptions()...)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

// coverOptions returns the build options for measuring coverage, or none if CASSIA_TEST_COVER isn't set.
func coverOptions() []string {
	dir := os.Getenv("CASSIA_TEST_COVER")
	if dir == "" {
		return nil
	}
	if err := os.Setenv("GOCOVERDIR", dir); err != nil { // Programs started by tests inherit it.
		panic(err)
	}
	return []string{"-cover", "-coverpkg=./..."}
}

func TestMain(m *testing.M) {
	status := m.Run()
	if err := os.RemoveAll(built.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}
