package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// damageable is a directory of the real program. It contains sealed days, tables in multiple levels, a snapshot, and
// samples that were written after the backup.
type damageable struct {
	dir, backups string
	// Both are copies of the directory: before was made after the first of three processes stopped, older while the
	// last process ran, before its last write.
	before, older string
	now           time.Time
	acked         map[string]int // number of acknowledged samples per metric
	backedUp      map[string]int // number of samples per metric in the backup
}

// lateSamples is the number of samples that each phase of the directory's history adds.
const lateSamples = 3

func newDamageable(t *testing.T) *damageable {
	d := &damageable{
		now: time.Now().Truncate(time.Hour), acked: map[string]int{}, backups: filepath.Join(t.TempDir(), "backups"),
	}
	d.dir = cassiatest.SealedDirectory(t, d.now)
	d.before, d.older = filepath.Join(t.TempDir(), "before"), filepath.Join(t.TempDir(), "older")
	for m := range 8 {
		d.acked[fmt.Sprintf("metric_%d", m)] = 3 * 24 * 60
	}
	use := func(part string, then func(s running)) {
		s := startServe(t, "--storage.path="+d.dir, "--retention.raw=0")
		for i := range lateSamples {
			s.Write(t, "late_"+part, d.now.Add(-time.Duration(i)*time.Minute), 1)
			d.acked["late_"+part]++
		}
		then(s)
		require.NoError(t, s.stop())
	}
	use("a", func(s running) {
		_, stderr, status := cassiatest.Command(
			t, builtCassia(t), "backup", "--storage.path="+d.dir, "--to="+d.backups, "--url="+s.URL,
		)
		require.Zero(t, status, stderr)
		code, text := s.Post(t, "/api/v1/admin/tsdb/snapshot", nil)
		require.Equal(t, 200, code, text)
	})
	d.backedUp = map[string]int{}
	for name, n := range d.acked {
		d.backedUp[name] = n
	}
	require.NoError(t, os.CopyFS(d.before, os.DirFS(d.dir)))
	use("b", func(running) {})
	use("c", func(s running) {
		noted := cassiatest.ReadText(t, filepath.Join(d.dir, "SYNCED"))
		s.Write(t, "late_c", d.now.Add(-time.Hour), 1)
		d.acked["late_c"]++
		require.Eventually(t, func() bool { return cassiatest.ReadText(t, filepath.Join(d.dir, "SYNCED")) != noted },
			cassiatest.Patience, 5*time.Millisecond)
		copyOfRunning(t, d.older, d.dir)
		s.Write(t, "late_c", d.now.Add(-2*time.Hour), 1)
		d.acked["late_c"]++
	})
	return d
}

// copyOfRunning copies the files of a directory that a server has open. The server must not be writing to it.
func copyOfRunning(t *testing.T, to, from string) {
	require.NoError(t, os.MkdirAll(to, 0o755))
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, e := range entries {
		if b, err := os.ReadFile(filepath.Join(from, e.Name())); err == nil {
			require.NoError(t, os.WriteFile(filepath.Join(to, e.Name()), b, 0o600))
		}
	}
}

// files returns the paths of all files below a directory.
func files(t *testing.T, dir string) (paths []string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			path, err = filepath.Rel(dir, path)
			paths = append(paths, filepath.ToSlash(path))
		}
		return err
	}))
	return paths
}

// contents returns the sizes and hashes of all files below a directory, by path.
func contents(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	for _, path := range files(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, path))
		require.NoError(t, err)
		all[path] = fmt.Sprintf("%d %x", len(b), sha256.Sum256(b))
	}
	return all
}

// answer is a server's response to queries for all samples of a directory.
type answer struct {
	samples map[string]int // number of samples per metric
	warned  bool           // a response reports missing samples
	silent  []string       // metrics whose samples are missing without a warning
	refused string         // the reason why the server didn't start
}

// ask starts the program on the directory "data" below base and queries all samples.
func (d *damageable) ask(t *testing.T, base string) (a answer) {
	p := promrig.Cassia(builtCassia(t), base, cassiatest.FreeAddress(t), "--retention.raw=0", "--no-self-monitoring")
	process, err := promrig.StartReady(t.Context(), p)
	if err != nil {
		require.ErrorIs(t, err, promrig.ErrExited)
		return answer{refused: cassiatest.LastLine(strings.TrimSpace(err.Error()))}
	}
	defer process.Kill()
	a.samples = map[string]int{}
	for name := range d.acked {
		code, text := cassiatest.Server{URL: process.URL()}.Get(t, fmt.Sprintf("/api/v1/query?time=%d&query=%s",
			d.now.Unix(), url.QueryEscape("count_over_time("+name+"[4d])")))
		if code == 500 {
			// The start fails if rows are damaged without which no result would be correct, such as the retention
			// boundaries of the tenant.
			require.Regexp(t, `cassia (check|restore)`, text)
			return answer{refused: text}
		}
		require.Equal(t, 200, code, text)
		var got struct {
			Warnings []string
			Data     struct{ Result []struct{ Value [2]any } }
		}
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		a.warned = a.warned || len(got.Warnings) > 0
		for _, r := range got.Data.Result {
			n := 0
			_, err := fmt.Sscan(fmt.Sprint(r.Value[1]), &n)
			require.NoError(t, err)
			a.samples[name] += n
		}
		require.LessOrEqual(t, a.samples[name], d.acked[name], name)
		if a.samples[name] < d.acked[name] && len(got.Warnings) == 0 {
			a.silent = append(a.silent, name)
		}
	}
	return a
}
