package objects

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
)

// memory is a bucket in memory, with a clock of its own.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	times   map[string]time.Time
	now     time.Time
	puts    int
}

func newMemory() *memory {
	return &memory{objects: map[string][]byte{}, times: map[string]time.Time{}, now: time.Unix(1e9, 0)}
}

func (m *memory) Put(_ context.Context, name string, from io.Reader, size int64) error {
	content, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if int64(len(content)) != size {
		return io.ErrUnexpectedEOF
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[name], m.times[name] = content, m.now
	m.puts++
	return nil
}

func (m *memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content, ok := m.objects[name]
	if !ok {
		return nil, ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

func (m *memory) List(_ context.Context, prefix string) (out []Object, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, content := range m.objects {
		if strings.HasPrefix(name, prefix) {
			out = append(out, Object{Name: name, Size: int64(len(content)), Modified: m.times[name]})
		}
	}
	return out, nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

// of returns the names of all objects of a kind.
func (m *memory) of(kind string) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range maps.Keys(m.objects) {
		if strings.HasPrefix(name, kind+"/") {
			names = append(names, name)
		}
	}
	return names
}

// checkpoint creates the directory of a store, with files that have no blocks to verify.
func checkpoint(t *testing.T, store string, files map[string]string) string {
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	require.NoError(t, pebble.NameLineage(dir, pebble.Lineage{Store: store}))
	return dir
}

// filesOf restores a backup and returns its files.
func filesOf(t *testing.T, b Bucket, name string, o Options) map[string]string {
	dir := filepath.Join(t.TempDir(), "restored")
	_, err := Restore(t.Context(), b, name, dir, o)
	require.NoError(t, err)
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() == "LOCK" { // the directory's own
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		out[e.Name()] = string(text)
	}
	return out
}

// testKey writes a key to a file, as age-keygen does.
func testKey(t *testing.T, identity string) *Key {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte("# a comment\n"+identity+"\n"), 0o600))
	k, err := ReadKey(path)
	require.NoError(t, err)
	return k
}
