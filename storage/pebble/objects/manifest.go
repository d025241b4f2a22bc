package objects

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/pebble"
)

const (
	manifestVersion = 1
	manifestSuffix  = ".manifest"
	damagedSuffix   = ".damaged"
	nameLayout      = "20060102T150405Z"
)

// manifest is the content of a backup. It is stored as a record.
type manifest struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`
	Store   string    `json:"store"`
	Copy    string    `json:"copy,omitempty"`    // pebble.Lineage.Copy
	Host    string    `json:"host,omitempty"`    // pebble.Lineage.Host
	Tenants []string  `json:"tenants,omitempty"` // pebble.Lineage.Tenants
	Taken   time.Time `json:"taken"`
	Files   []file    `json:"files"`
	// Others are the manifests that existed when this manifest was made. They reveal manifests that are missing in a
	// listing.
	Others []string `json:"others,omitempty"`
	// Damaged are the files that were already damaged in the source.
	Damaged []string `json:"damaged,omitempty"`
}

// file is a file of a backup. Changed is its modification time in the engine's directory, in nanoseconds since 1970.
type file struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"`
	SHA256  string `json:"sha256"`
	// Object is the last part of the name of the file's object.
	Object string `json:"object"`
	// Verified is set if every block matched its checksum when the file was uploaded; only sorted files have blocks.
	Verified bool `json:"verified,omitempty"`
}

// set identifies the backups of one store under one key.
type set struct{ store, key string }

func (s set) folder(kind string) string { return path.Join(kind, s.store, s.key) + "/" }

// unnamedStore is the name of a store that has no identity because it is empty.
const unnamedStore = "unnamed"

var (
	storeName  = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]*$`)
	backupName = regexp.MustCompile(`^\d{8}T\d{6}Z-[0-9a-z]+$`)
)

// setOf returns the set of a store and a key. An identity that can't be part of a path is encoded in hexadecimal.
func setOf(store string, k *Key) set {
	switch {
	case store == "":
		store = unnamedStore
	case !storeName.MatchString(store):
		store = "hex-" + hex.EncodeToString([]byte(store))
	}
	return set{store, k.set()}
}

// listed is a backup, as far as the name of its manifest describes it.
type listed struct {
	set
	pebble.DatedBackup
	object   string
	modified time.Time
}

// listBackups returns the backups below a prefix, the oldest first.
func listBackups(ctx context.Context, b Bucket, prefix string) (out []listed, err error) {
	objects, err := b.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		parts := strings.Split(o.Name, "/")
		if len(parts) != 4 {
			continue
		}
		name, ok := strings.CutSuffix(parts[3], manifestSuffix)
		name, damaged := strings.CutSuffix(name, damagedSuffix)
		if !ok || !backupName.MatchString(name) {
			continue
		}
		taken, err := time.Parse(nameLayout, name[:len(nameLayout)])
		if err != nil {
			continue
		}
		out = append(out, listed{
			set{parts[1], parts[2]}, pebble.DatedBackup{Name: name, Taken: taken, Damaged: damaged}, o.Name, o.Modified,
		})
	}
	slices.SortFunc(out, func(x, y listed) int {
		return cmp.Or(x.Taken.Compare(y.Taken), x.modified.Compare(y.modified), strings.Compare(x.Name, y.Name))
	})
	return out, nil
}

// bytes returns the total size of all files.
func (m *manifest) bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// write stores a manifest.
func (m *manifest) write(ctx context.Context, b Bucket, s set, k *Key) error {
	return putRecord(ctx, b, s.manifest(m.Name, len(m.Damaged) > 0), m, k)
}

// equal reports whether two manifests are the same.
func (m *manifest) equal(other *manifest) (bool, error) {
	one, err := json.Marshal(m)
	if err != nil {
		return false, err
	}
	two, err := json.Marshal(other)
	return bytes.Equal(one, two), err
}

// manifest returns the name of the object of a backup's manifest.
func (s set) manifest(backup string, damaged bool) string {
	name := s.folder("backups") + backup
	if damaged {
		name += damagedSuffix
	}
	return name + manifestSuffix
}

// readManifest reads and checks a manifest. It returns pebble.ErrBackup if its content has changed since it was stored.
func readManifest(ctx context.Context, b Bucket, l listed, k *Key) (m manifest, err error) {
	if l.key != k.set() {
		return m, wrongKey(l)
	}
	if err := getRecord(ctx, b, l.object, &m, k); err != nil {
		return m, err
	}
	wrong := func(what string) (manifest, error) {
		return manifest{}, fmt.Errorf("%w: %s: %s", pebble.ErrBackup, l.object, what)
	}
	switch {
	case m.Version != manifestVersion:
		return manifest{}, &pebble.BackupVersionError{Backup: l.object, Version: m.Version, Supported: manifestVersion}
	case m.Name != l.Name || setOf(m.Store, k) != l.set:
		return wrong(fmt.Sprintf("it belongs to backup %s of store %s", m.Name, m.Store))
	}
	for _, f := range m.Files {
		if !isName(f.Name) || !isName(f.Object) || f.Size < 0 {
			return wrong(fmt.Sprintf("it lists %q and %q, which is not a backup file", f.Name, f.Object))
		}
	}
	return m, nil
}

// wrongKey returns the error for a backup that requires another key, or no key.
func wrongKey(l listed) error {
	if l.key == plainSet {
		return fmt.Errorf("%w: backup %s isn't encrypted; omit --key-file", ErrKey, l.Name)
	}
	return fmt.Errorf("%w: backup %s is encrypted with the key %s; set its file with --key-file", ErrKey, l.Name, l.key)
}

// isName reports whether a name is a file name without a path.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

// randomName returns 16 random hexadecimal digits.
func randomName() string {
	var b [8]byte
	rand.Read(b[:]) // rand.Read never fails.
	return hex.EncodeToString(b[:])
}

// isGone reports whether an error means that an object doesn't exist.
func isGone(err error) bool { return errors.Is(err, ErrNotFound) }

// Backups returns the backups of a store under a key, the oldest first.
func Backups(ctx context.Context, b Bucket, store string, k *Key) (out []pebble.DatedBackup, err error) {
	all, err := listBackups(ctx, b, setOf(store, k).folder("backups"))
	for _, l := range all {
		out = append(out, l.DatedBackup)
	}
	return out, err
}

// SizeOf returns the number of files of a store's backup, and their bytes, including files shared with other backups.
// It reads the backup's manifest.
func SizeOf(
	ctx context.Context, b Bucket, store string, backup pebble.DatedBackup, k *Key,
) (files int, bytes int64, err error) {
	l := listed{set: setOf(store, k), DatedBackup: backup}
	l.object = l.manifest(backup.Name, backup.Damaged)
	m, err := readManifest(ctx, b, l, k)
	if err != nil {
		return 0, 0, err
	}
	return len(m.Files), m.bytes(), nil
}
