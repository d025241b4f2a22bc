package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
)

// liar is a bucket with intact objects that gives wrong responses to requests of one kind, for objects of one kind.
type liar struct {
	*memory
	lie
	// kind is the kind of objects: backups, garbage, files or clock. own is the backup in progress.
	kind, own string
	// later delays the wrong responses until the manifest of own has been read, which sets read.
	later, read bool
	// newest is the newest object of its kind before the wrong responses started.
	newest string
	// there contains the objects of the kind before the backup started. removed contains the objects of the kind that
	// were deleted earlier.
	there, removed map[string][]byte
	lies           int
}

// lie changes the responses to one kind of request. Only the field of this kind is set.
type lie struct {
	list func(l *liar, found []Object) []Object
	get  func(l *liar, name string, content []byte) ([]byte, error)
	put  func(content []byte) (stored []byte) // nil: nothing is stored
	del  bool                                 // the object isn't deleted
}

func sorted(found []Object) []Object {
	slices.SortFunc(found, func(x, y Object) int { return strings.Compare(x.Name, y.Name) })
	return found
}

// liesAbout are the kinds of wrong responses.
var liesAbout = map[string]lie{
	"LIST empty":              {list: func(*liar, []Object) []Object { return nil }},
	"LIST without the newest": {list: func(_ *liar, found []Object) []Object { return found[:max(0, len(found)-1)] }},
	"LIST without the oldest": {list: func(_ *liar, found []Object) []Object { return found[min(1, len(found)):] }},
	"LIST without the second": {list: func(_ *liar, found []Object) []Object {
		return slices.Delete(found, min(1, len(found)), min(2, len(found)))
	}},
	"LIST without one of before": {list: func(l *liar, found []Object) []Object {
		return slices.DeleteFunc(found, func(o Object) bool { return o.Name == l.newest })
	}},
	"LIST with its own only": {list: func(l *liar, found []Object) []Object {
		return slices.DeleteFunc(found, func(o Object) bool { return !strings.Contains(o.Name, l.own) })
	}},
	"LIST of before the backup": {list: func(l *liar, found []Object) []Object {
		return slices.DeleteFunc(found, func(o Object) bool { return l.there[o.Name] == nil })
	}},
	"LIST with deleted ones": {list: func(l *liar, found []Object) []Object {
		for name, content := range l.removed {
			found = append(found, Object{Name: name, Size: int64(len(content)), Modified: l.now.Add(-time.Minute)})
		}
		return found
	}},
	"GET missing": {get: func(*liar, string, []byte) ([]byte, error) { return nil, ErrNotFound }},
	"GET missing, except its own": {get: func(l *liar, name string, content []byte) ([]byte, error) {
		if strings.Contains(name, l.own) {
			return content, nil
		}
		return nil, ErrNotFound
	}},
	"GET cut":   {get: func(_ *liar, _ string, content []byte) ([]byte, error) { return content[:len(content)/2], nil }},
	"GET empty": {get: func(*liar, string, []byte) ([]byte, error) { return nil, nil }},
	"GET a bit": {get: func(_ *liar, _ string, content []byte) ([]byte, error) {
		return flipped(append(bytes.Clone(content), ' '), len(content)/2), nil
	}},
	"GET a page": {get: func(*liar, string, []byte) ([]byte, error) { return []byte("<html>Sign in</html>"), nil }},
	"GET another of the kind": {get: func(l *liar, name string, content []byte) ([]byte, error) {
		for _, other := range slices.Sorted(maps.Keys(l.there)) {
			if other != name {
				return l.there[other], nil
			}
		}
		return content, nil
	}},
	"GET fails":   {get: func(*liar, string, []byte) ([]byte, error) { return nil, errors.New("connection reset") }},
	"PUT lost":    {put: func([]byte) []byte { return nil }},
	"PUT cut":     {put: func(content []byte) []byte { return content[:len(content)/2] }},
	"PUT empty":   {put: func([]byte) []byte { return []byte{} }},
	"DELETE lost": {del: true},
}

// isLie reports whether the response about an object is wrong, and counts the wrong responses. asked is set if the lie
// is about this kind of request.
func (l *liar) isLie(name string, asked bool) bool {
	is := asked && strings.HasPrefix(name, l.kind+"/") && l.own != "" && (l.read || !l.later)
	if is {
		l.lies++
	}
	return is
}

func (l *liar) List(ctx context.Context, prefix string) ([]Object, error) {
	found, err := l.memory.List(ctx, prefix)
	if l.isLie(prefix, l.list != nil) {
		found = l.list(l, sorted(found))
	}
	return found, err
}

func (l *liar) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := l.memory.Get(ctx, name)
	if err != nil || !l.isLie(name, l.get != nil) {
		l.read = l.read || strings.HasPrefix(name, "backups/") && strings.Contains(name, l.own)
		return in, err
	}
	content, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	if content, err = l.get(l, name, content); err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

func (l *liar) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	if !l.isLie(name, l.put != nil) {
		return l.memory.Put(ctx, name, from, size)
	}
	content, err := io.ReadAll(from)
	if content = l.put(content); err != nil || content == nil {
		return err
	}
	return l.memory.Put(ctx, name, bytes.NewReader(content), int64(len(content)))
}

func (l *liar) Delete(ctx context.Context, name string) error {
	if l.isLie(name, l.del) {
		return nil
	}
	if content := l.objects[name]; strings.HasPrefix(name, l.kind+"/") && content != nil {
		l.removed[name] = content
	}
	return l.memory.Delete(ctx, name)
}

// undetectable are the wrong responses that no other response can contradict.
var undetectable = map[string]string{
	"LIST with deleted ones of files": "whether a file is there is known from the listing only; Bucket's contract says that it sees what was deleted before",
}

// TestWrongAnswers makes a bucket give every kind of wrong response about every kind of object during four backups with
// retention, half a day apart. Every acknowledged backup that retention doesn't remove can be restored. When the
// responses are correct again, backups succeed again.
func TestWrongAnswers(t *testing.T) {
	var checkpoints []checkpointed
	for n := range 17 {
		files := map[string]string{
			"always": "x", "new": fmt.Sprint(n), "returns": fmt.Sprint(n % 2), "third": fmt.Sprint(n / 3),
		}
		checkpoints = append(checkpoints, checkpointed{checkpoint(t, "s", files), files})
	}
	for about, wrong := range liesAbout {
		for _, kind := range []string{"backups", "garbage", "files", "clock"} {
			for _, later := range []bool{false, true} {
				name := fmt.Sprintf("%s of %s", about, kind)
				if undetectable[name] != "" {
					continue
				}
				t.Run(fmt.Sprintf("%s later=%t", name, later), func(t *testing.T) {
					testWrongAnswers(t, checkpoints, wrong, kind, later)
				})
			}
		}
	}
}

// checkpointed is the source of a backup.
type checkpointed struct {
	dir   string
	files map[string]string
}

// chain makes backups, half a day apart, of contents that change.
type chain struct {
	t     *testing.T
	from  []checkpointed
	b     *liar
	o     Options
	now   time.Time
	n     int
	acked []string // names of backups that were made
	files map[string]map[string]string
}

func (c *chain) backup() error {
	c.n++
	c.now, c.b.now = c.now.Add(12*time.Hour), c.b.now.Add(12*time.Hour)
	name := names(100)[c.n]
	c.b.there, c.b.read = maps.Clone(c.b.objects), false
	from := c.from[c.n]
	_, err := Backup(c.t.Context(), c.b, from.dir, name, c.o)
	var retention *pebble.RetentionError
	if err == nil || errors.As(err, &retention) {
		c.acked = append(c.acked, name)
		c.files[name] = from.files
	}
	return err
}

// verify restores the newest backups that were acknowledged or are complete.
func (c *chain) verify() {
	for i, n := 0, c.n; n > 0 && i < c.o.Keep.Last; n-- {
		name := names(100)[n]
		got, err := c.contents(c.b.memory, name)
		if slices.Contains(c.acked, name) {
			require.NoError(c.t, err, name)
			require.Equal(c.t, c.files[name], got, name)
		}
		if err == nil {
			i++
		}
	}
}

// contents reads a backup as Restore does, without a disk.
func (c *chain) contents(b Bucket, name string) (map[string]string, error) {
	all, err := listBackups(c.t.Context(), b, "backups/")
	if err != nil {
		return nil, err
	}
	l, err := chooseBackup(all, name, nil)
	if err != nil {
		return nil, err
	}
	m, err := readManifest(c.t.Context(), b, l, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, f := range m.Files {
		err := downloadFile(c.t.Context(), b, l.folder("files"), f, func(from io.Reader) error {
			text, err := io.ReadAll(from)
			out[f.Name] = string(text)
			return err
		}, nil)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func testWrongAnswers(t *testing.T, from []checkpointed, wrong lie, kind string, later bool) {
	c := &chain{
		t: t, from: from, b: &liar{memory: newMemory(), kind: kind, removed: map[string][]byte{}}, o: DefaultOptions(),
		now: time.Unix(2e9, 0), files: map[string]map[string]string{},
	}
	c.o.Keep, c.o.Grace, c.o.Workers, c.o.Now = pebble.Keep{Last: 3}, 10*time.Hour, 1, func() time.Time { return c.now }
	for range 8 {
		require.NoError(t, c.backup())
		c.verify()
	}
	require.NotEmpty(t, c.b.of("garbage"))
	if of := slices.Sorted(slices.Values(c.b.of(kind))); len(of) > 0 {
		c.b.newest = of[len(of)-1]
	}
	c.b.lie, c.b.later = wrong, later
	for range 4 {
		c.b.own = names(100)[c.n+1]
		err := c.backup()
		t.Logf("%v", err)
		c.verify()
		last := c.acked[len(c.acked)-1]
		if got, err := c.contents(c.b, last); err == nil {
			require.Equal(t, c.files[last], got)
		}
	}
	c.b.lie = lie{}
	for _, object := range c.b.of("garbage") {
		// Lists that were stored damaged stay damaged and are reported. The remedy is to delete them.
		if getRecord(t.Context(), c.b.memory, object, &garbage{}, nil) != nil {
			require.NoError(t, c.b.memory.Delete(t.Context(), object))
		}
	}
	for range 4 {
		c.b.own = names(100)[c.n+1]
		require.NoError(t, c.backup())
		c.verify()
	}
	require.LessOrEqual(t, len(c.b.of("files")), 20, "what isn't used is removed again")
}
