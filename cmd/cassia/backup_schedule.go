package main

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/pebble"
)

// startBackups starts the backup schedule, if one is configured. The returned function stops it and cancels a running
// backup.
func (p *process) startBackups(ctx context.Context) (schedule *backups.Schedule, stop func()) {
	e, ok := p.engine.(*pebble.Engine)
	if !ok || p.c.Backup.Place.At == "" {
		return nil, func() {}
	}
	schedule = backups.NewSchedule(backups.ScheduleOptions{
		Place: p.c.Backup.Place, Every: p.c.Backup.Every, Folder: filepath.Join(p.c.Path, snapshotsFolder),
		NewName: backupName, Now: time.Now,
		Store:    func(ctx context.Context) (string, error) { return storage.IDOf(ctx, e) },
		Snapshot: func(ctx context.Context, dir string) error { return makeCheckpoint(ctx, e, dir) },
		Logger:   p.log.With("component", "backup"), Registerer: p.registry,
	})
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { panics.Repeat(ctx, "backing up", func() { schedule.Run(ctx) }) })
	return schedule, func() { cancel(); running.Wait() }
}

// backupsRoute returns the route that reports the status of scheduled backups. The response contains no tenant data.
func backupsRoute(schedule *backups.Schedule) server.Route {
	return server.Route{Path: "GET /api/v1/status/backups", Name: "/api/v1/status/backups", Role: server.Watch,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			// Encode fails only if the client has disconnected.
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": schedule.Status()})
		})}
}
