package e2e

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// built is the real program, which is built when a test first asks for it, for all tests of the package: to link it
// takes longer than most of them.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// builtCassia returns the path of the real program. It skips a test where no other programs are to be started.
func builtCassia(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the real program: leave -short out")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "cassia-test-"); built.err == nil {
			built.path, built.err = promrig.BuildCassia(built.dir)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

func TestMain(m *testing.M) {
	status := m.Run()
	if err := os.RemoveAll(built.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}
