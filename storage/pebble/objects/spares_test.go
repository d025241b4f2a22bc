package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
)

// sparesOf returns all that Spares yields, until its first error.
func sparesOf(ctx context.Context, b Bucket, k *Key) (all []pebble.Spare, err error) {
	for s, err := range Spares(ctx, b, k) {
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

// content returns the bytes passed by a file's Copy.
func content(t *testing.T, f pebble.SpareFile) (string, error) {
	var out bytes.Buffer
	err := f.Copy(t.Context(), func(from io.Reader) error {
		_, err := io.Copy(&out, from)
		return err
	})
	return out.String(), err
}

func TestSpares(t *testing.T) {
	for about, key := range map[string]*Key{"plain": nil, "encrypted": testKey(t, newIdentity(t))} {
		t.Run(about, func(t *testing.T) {
			b, o, name := newMemory(), DefaultOptions(), names(4)
			o.Key = key
			none, err := sparesOf(t.Context(), b, key)
			require.NoError(t, err)
			require.Empty(t, none)
			for i, files := range []map[string]string{
				{"000001.sst": "one", "000002.log": strings.Repeat("two", 1e5)},
				{"000001.sst": "one", "000002.log": "longer"},
				{"000001.sst": "other"},
			} {
				_, err := Backup(t.Context(), b, checkpoint(t, []string{"s", "s", "another"}[i], files), name[i], o)
				require.NoError(t, err)
			}
			all, err := sparesOf(t.Context(), b, key)
			require.NoError(t, err)
			require.Equal(t, []string{name[2], name[1], name[0]}, []string{all[0].Name, all[1].Name, all[2].Name})
			require.Equal(t, all[1].Files["000001.sst"].ID, all[2].Files["000001.sst"].ID, "they share the object")
			require.NotEqual(t, all[1].Files["000002.log"].ID, all[2].Files["000002.log"].ID)
			require.EqualValues(t, 3e5, all[2].Files["000002.log"].Size)
			text, err := content(t, all[2].Files["000002.log"])
			require.NoError(t, err)
			require.Equal(t, strings.Repeat("two", 1e5), text)

			failing := errors.New("disk full")
			err = all[2].Files["000002.log"].Copy(t.Context(), func(io.Reader) error { return failing })
			require.ErrorIs(t, err, failing)
			require.NotErrorIs(t, err, pebble.ErrBackup, "the backup isn't to blame")

			object := all[1].Files["000001.sst"].ID
			b.objects[object][len(b.objects[object])-1] ^= 1
			_, err = content(t, all[1].Files["000001.sst"])
			require.ErrorIs(t, err, pebble.ErrBackup)
			require.NoError(t, b.Delete(t.Context(), object))
			_, err = content(t, all[1].Files["000001.sst"])
			require.ErrorIs(t, err, pebble.ErrBackup)

			for _, object := range b.of("backups") {
				if strings.Contains(object, name[1]) {
					b.objects[object][0] ^= 1
				}
			}
			all, err = sparesOf(t.Context(), b, key)
			require.NoError(t, err)
			require.Equal(t, []string{name[2], name[0]}, []string{all[0].Name, all[1].Name},
				"nothing says what the files of the other should be")

			_, err = sparesOf(t.Context(), b, testKey(t, newIdentity(t)))
			require.ErrorIs(t, err, ErrKey)
		})
	}
}
