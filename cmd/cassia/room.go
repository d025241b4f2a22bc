package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
)

// roomEvery is the interval between checks of the free disk space.
const roomEvery = time.Minute

// watchRoom logs when the free disk space falls below a threshold and when it has recovered, until ctx ends. The
// thresholds are higher than the one below which writes are rejected.
func (p *process) watchRoom(ctx context.Context) {
	if p.c.Kind != config.EnginePebble {
		return
	}
	ticker := time.NewTicker(roomEvery)
	defer ticker.Stop()
	for level := doctor.OK; ; {
		free, total := doctor.FreeSpace(p.c.Path)
		level = logRoom(p.log.With("at", p.c.Path, "free_bytes", free, "total_bytes", total), level,
			doctor.LevelOf(free, total))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// logRoom logs the free disk space if its level has changed. It returns the new level.
func logRoom(log *slog.Logger, was, is doctor.Level) doctor.Level {
	switch {
	case is == was:
	case is == doctor.Error:
		log.Error(
			"the disk is full: 512 MiB or less are free, so no samples are accepted; free disk space or shorten the " +
				"retention (--retention.raw)",
		)
	case is == doctor.Warning:
		log.Warn(
			"disk space is low: below 512 MiB no samples are accepted, and compaction needs space too; free disk " +
				"space or shorten the retention (--retention.raw)",
		)
	default:
		log.Info("enough disk space is free again")
	}
	return is
}
