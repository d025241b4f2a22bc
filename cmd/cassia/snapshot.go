package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/pebble"
)

// snapshotsFolder is where snapshots are made in a data directory, by name.
const snapshotsFolder = "snapshots"

// snapshots returns what makes a snapshot, and the data directory in which they are made; nil: none can be made.
func (p *process) snapshots() (make func(dir string) error, in string) {
	e, ok := p.engine.(*pebble.Engine)
	if !ok {
		return nil, ""
	}
	return func(dir string) error {
		if err := os.Remove(dir); err != nil { // A checkpoint makes its directory itself.
			return err
		}
		return checkpoint(context.Background(), e, dir)
	}, p.c.Path
}

// checkpoint makes one in a directory that isn't there yet, and notes in it of which store it is.
func checkpoint(ctx context.Context, e *pebble.Engine, dir string) error {
	store, err := storage.IDOf(ctx, e)
	if err != nil {
		return err
	}
	if err := e.Checkpoint(dir); err != nil {
		return err
	}
	return pebble.NameStore(dir, store)
}

// serverOfDirectory is the one that uses a directory.
type serverOfDirectory struct {
	url   *string
	login *httpConfig
}

func serverOfDirectoryFlags(cmd *kingpin.CmdClause) *serverOfDirectory {
	return &serverOfDirectory{
		cmd.Flag("url", "The server that uses the directory, if one does; it must run with --web.enable-admin-api.").Default("http://localhost:9201").String(),
		httpConfigFlag(cmd),
	}
}

// snapshot makes the server make a snapshot of the directory, and returns its name.
func (s *serverOfDirectory) snapshot(ctx context.Context, dir string) (name string, err error) {
	client, err := s.login.client(*s.url)
	if err != nil {
		return "", err
	}
	where, err := url.JoinPath(*s.url, "/api/v1/admin/tsdb/snapshot")
	if err != nil {
		return "", fmt.Errorf("--url: %w", err)
	}
	wrong := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%s is in use, and the server at --url=%s "+format, append([]any{dir, withoutUser(*s.url)}, args...)...)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, where, nil)
	if err != nil {
		return wrong("can't be asked for a snapshot: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return wrong("doesn't answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return wrong("broke off: %w", err)
	}
	var answer struct {
		Error string
		Data  struct{ Name string }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return wrong("answered %s: %.200s", resp.Status, bytes.TrimSpace(body))
	}
	if answer.Error != "" || answer.Data.Name == "" {
		return wrong("answered %s: %s", resp.Status, answer.Error)
	}
	if name = filepath.Base(answer.Data.Name); name != answer.Data.Name {
		return wrong("named its snapshot %q", answer.Data.Name)
	}
	if _, err := os.Stat(filepath.Join(dir, snapshotsFolder, name)); err != nil {
		return wrong("made a snapshot, but not there: it has another --storage.path (%w)", err)
	}
	return name, nil
}
