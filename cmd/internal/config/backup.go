package config

import (
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/backups"
)

// Backup holds the flags of scheduled backups.
type Backup struct {
	// Place is the location of the backups. If Place.At is empty, no backups are scheduled.
	Place backups.Location
	Every time.Duration

	every string
}

// backupFlags declares the flags of scheduled backups.
func backupFlags(cmd *kingpin.CmdClause, b *Backup) {
	cmd.Flag("backup.to", "Where to back up the data directory: a folder, or a bucket as "+
		"s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION. Default: no backups.").StringVar(&b.Place.At)
	cmd.Flag("backup.every", "Interval between backups.").Default("1h").StringVar(&b.every)
	b.Place.KeepFlags(cmd, "backup.")
	b.Place.KeyFlag(cmd, "backup.")
}

func (c *Config) checkBackup() error {
	b := &c.Backup
	if err := parseDuration("backup.every", b.every, false, &b.Every); err != nil {
		return err
	}
	err := b.Place.Validate()
	if b.Place.At == "" {
		return nil
	}
	if c.Kind != EnginePebble {
		return flagError("backup.to", b.Place.String(),
			"applies to a data directory only; on Cassandra, back up the cluster with docker/cassandra/snapshot")
	}
	if err == nil {
		err = b.Place.CheckBeside(c.Path)
	}
	if err != nil {
		return flagError("backup.to", b.Place.String(), oneLine(err))
	}
	return nil
}
