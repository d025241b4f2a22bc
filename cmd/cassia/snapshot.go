package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// snapshotsFolder is the folder in a data directory that contains the snapshots.
const snapshotsFolder = "snapshots"

// snapshotFunctions returns two functions that make snapshots, and the data directory that contains the snapshots (in).
// unclaimed makes a snapshot that is kept until a user removes it. claimed makes a snapshot for a command. The command
// must have claimed the snapshot's name, and removes the snapshot after use. Both functions are nil if the engine can't
// make snapshots.
func (p *process) snapshotFunctions() (unclaimed func(dir string) error,
	claimed func(ctx context.Context, name string) error, in string) {
	e, ok := p.engine.(*pebble.Engine)
	if !ok {
		return nil, nil, ""
	}
	make := func(dir string) error { return makeCheckpoint(context.Background(), e, dir) }
	unclaimed = func(dir string) error {
		if err := os.Remove(dir); err != nil { // The checkpoint creates its directory itself.
			return err
		}
		return backups.MakeUnclaimed(context.Background(), filepath.Dir(dir), filepath.Base(dir), make)
	}
	claimed = func(ctx context.Context, name string) error {
		return backups.MakeClaimed(ctx, filepath.Join(p.c.Path, snapshotsFolder), name, make)
	}
	return unclaimed, claimed, p.c.Path
}

// abandonedEvery is the interval at which the server removes snapshots of commands that were killed.
const abandonedEvery = time.Minute

// sweepSnapshots removes the snapshots of commands that were killed, until ctx ends. At the start, it logs the
// snapshots that are kept.
func (p *process) sweepSnapshots(ctx context.Context) {
	if p.c.Kind != config.EnginePebble {
		return
	}
	folder := filepath.Join(p.c.Path, snapshotsFolder)
	if stay, err := backups.UnclaimedSnapshots(folder); err != nil {
		p.log.Warn("can't list the snapshots", "at", folder, "err", err)
	} else if len(stay) > 0 {
		p.log.Info("snapshots exist; their files use disk space until the snapshots are removed", "at", folder,
			"snapshots", len(stay), "oldest", stay[0])
	}
	ticker := time.NewTicker(abandonedEvery)
	defer ticker.Stop()
	for said := ""; ; {
		removed, err := backups.RemoveAbandoned(ctx, folder)
		if len(removed) > 0 {
			p.log.Info("removed the snapshots of killed commands", "at", folder, "snapshots",
				strings.Join(removed, ", "))
		}
		if err != nil && ctx.Err() == nil && said != oneLine(err) {
			said = oneLine(err)
			p.log.Warn("can't remove the snapshot of a killed command yet", "at", folder, "err", said)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// makeCheckpoint makes a checkpoint of the engine and records the store's identity in it. The directory must not exist
// yet.
func makeCheckpoint(ctx context.Context, e *pebble.Engine, dir string) error {
	store, copy, restoredFrom, err := storage.CopyIDOf(ctx, e)
	if err != nil {
		return err
	}
	if err := e.Checkpoint(dir); err != nil {
		return err
	}
	l := pebble.Lineage{Store: store, Copy: copy, RestoredFrom: restoredFrom}
	l.Host, _ = os.Hostname() // The host name is only informative.
	tenants, more, err := storage.TenantsOf(ctx, e, maxNamedTenants)
	if err != nil && !errors.Is(err, engine.ErrCorrupt) { // A damaged store is backed up anyway.
		return err
	}
	if more {
		tenants = append(tenants, "…")
	}
	l.Tenants = strings.Join(tenants, ",")
	return pebble.NameLineage(dir, l)
}

// maxNamedTenants is the max number of tenants that are recorded in a backup.
const maxNamedTenants = 100

// serverOfDirectory locates the server that uses a directory.
type serverOfDirectory struct {
	url   *string
	login *httpConfig
}

func serverOfDirectoryFlags(cmd *kingpin.CmdClause) *serverOfDirectory {
	return &serverOfDirectory{
		cmd.Flag(
			"url",
			"URL of the server that uses the data directory, if one is running. It needs --web.enable-admin-api.",
		).Default("http://localhost:9201").String(),
		httpConfigFlag(cmd),
	}
}

// withSnapshot requests a snapshot of the directory from the server, calls use with the snapshot's path, and removes
// the snapshot. If this process is killed, the server removes the snapshot.
func (s *serverOfDirectory) withSnapshot(ctx context.Context, dir string, use func(snapshot string) error) error {
	name, folder := backupName(time.Now()), filepath.Join(dir, snapshotsFolder)
	claim, err := backups.ClaimSnapshot(ctx, folder, name)
	if err != nil {
		return err
	}
	if err = s.snapshot(ctx, dir, name); err == nil {
		err = use(filepath.Join(folder, name))
	}
	return errors.Join(err, claim.Remove())
}

// snapshot requests a snapshot of the directory from the server. This process must have claimed the name.
func (s *serverOfDirectory) snapshot(ctx context.Context, dir, name string) error {
	client, err := s.login.newClient(*s.url)
	if err != nil {
		return err
	}
	where, err := url.JoinPath(*s.url, "/api/v1/admin/tsdb/snapshot")
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s is in use, and the server at --url=%s "+format,
			append([]any{dir, withoutUser(*s.url)}, args...)...)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, where+"?claim="+url.QueryEscape(name), nil)
	if err != nil {
		return wrong("can't be sent a snapshot request: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return wrong("doesn't respond: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return wrong("interrupted the response: %w", err)
	}
	var answer struct {
		Error string
		Data  struct{ Name string }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return wrong("returned %s: %.200s", resp.Status, bytes.TrimSpace(body))
	}
	if answer.Error != "" {
		return wrong("returned %s: %s", resp.Status, answer.Error)
	}
	if answer.Data.Name != name {
		return wrong("named its snapshot %q instead of %q", answer.Data.Name, name)
	}
	if _, err := os.Stat(filepath.Join(dir, snapshotsFolder, name)); err != nil {
		return wrong("created a snapshot in another directory, because it has another --storage.path (%w)", err)
	}
	return nil
}
