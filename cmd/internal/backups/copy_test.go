package backups

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestBackupsOfACopy restores a copy of a store and backs up both to the same location. Once one of the two has made a
// backup that is newer than the restored backup, backups of the other one must be rejected, unless the option to take
// over the location is set.
func TestBackupsOfACopy(t *testing.T) {
	needsServer(t)
	server := s3test.Start(t)
	for about, at := range map[string]string{
		"folder": filepath.Join(t.TempDir(), "backups"), "bucket": s3test.At(server.Address, "copies"),
	} {
		t.Run(about, func(t *testing.T) {
			p := Location{At: at, Keep: pebble.Keep{Last: 3}}
			n := 0
			backup := func(x *testStore, p Location) error {
				x.write()
				n++
				_, err := p.Backup(t.Context(), x.makeSnapshot(), name(n), time.Now())
				return err
			}
			original := newStore(t)
			require.NoError(t, backup(original, p))
			require.NoError(t, backup(original, p))
			restore := func(from string) *testStore {
				dir := filepath.Join(t.TempDir(), "data")
				_, err := p.RestoreAndChange(t.Context(), from, dir, func(dir, backup string) error {
					eng, err := pebble.Open(dir, pebble.DefaultOptions())
					require.NoError(t, err)
					require.NoError(t, storage.MarkRestored(t.Context(), eng, backup, time.Now()))
					return eng.Close()
				})
				require.NoError(t, err)
				return openStore(t, dir)
			}
			copied := restore("")
			require.NoError(t, backup(original, p))
			require.ErrorIs(t, backup(copied, p), pebble.ErrOtherCopy)
			require.ErrorContains(t, backup(copied, p),
				"isn't part of this directory's history, and would be replaced over time. Use another destination for this copy, or, if the other copy is no longer used, run cassia backup --take-over once")
			require.NoError(t, backup(original, p), "it goes on")
			list, err := p.List(t.Context(), must(original.id(t.Context())))
			require.NoError(t, err)
			require.Len(t, list, 3, "none was pushed out")

			takesOver := p
			takesOver.TakeOver = true
			require.NoError(t, backup(copied, takesOver))
			require.NoError(t, backup(copied, p))
			require.ErrorIs(t, backup(original, p), pebble.ErrOtherCopy)

			after := restore("") // A restore to a new directory, as after a disaster.
			require.NoError(t, backup(after, p))
			require.NoError(t, backup(after, p))

			eng := after.eng // A repaired store isn't a copy.
			require.NoError(t, storage.MarkRestored(t.Context(), eng, "", time.Now()))
			require.NoError(t, backup(after, p))
		})
	}
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// openStore opens a restored directory.
func openStore(t *testing.T, dir string) *testStore {
	x := &testStore{t: t, dir: dir, n: 100}
	var err error
	x.eng, err = pebble.Open(dir, pebble.DefaultOptions())
	require.NoError(t, err)
	x.s = storagetest.Start(t, x.eng)
	t.Cleanup(func() { require.NoError(t, x.s.Close()); require.NoError(t, x.eng.Close()) })
	return x
}
