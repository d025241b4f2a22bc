package pebble

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// smallOptions returns options with small limits, so that tests reach them early: memtables fill, files are split and
// have many blocks, and sealed rows are written as files.
func smallOptions() Options {
	o := DefaultOptions()
	o.CacheBytes = 4 << 20
	o.MemTableBytes = 1 << 20
	o.BlockBytes = 4 << 10
	o.IngestBytes = 1
	return o
}

func TestConformance(t *testing.T) {
	for name, opts := range map[string]Options{"default": DefaultOptions(), "small": smallOptions()} {
		t.Run(name, func(t *testing.T) {
			dirs := map[engine.Engine]string{}
			openIn := func(t testing.TB, dir string) engine.Engine {
				e, err := Open(dir, opts)
				require.NoError(t, err)
				dirs[e] = dir
				return e
			}
			enginetest.Run(t,
				func(t testing.TB) engine.Engine { return openIn(t, t.TempDir()) },
				enginetest.WithReopen(func(t testing.TB, e engine.Engine) engine.Engine {
					require.NoError(t, e.Close())
					return openIn(t, dirs[e])
				}),
				enginetest.Without(
					"DeleteMindsTimestamps", "a delete finds what was written before it: see Engine.Write",
				))
		})
	}
	t.Run("read by others", testConformanceOfReading)
}
