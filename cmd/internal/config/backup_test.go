package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackupFlags(t *testing.T) {
	c, err := parse(t, "--backup.to=backups", "--backup.every=90s", "--backup.keep=3")
	require.NoError(t, err)
	require.Equal(t, "backups", c.Backup.Place.At)
	require.Equal(t, 90*time.Second, c.Backup.Every)
	require.Equal(t, 3, c.Backup.Place.Keep.Last)
	for want, args := range map[string][]string{
		"--backup.every=soon": {"--backup.to=backups", "--backup.every=soon"},
		"from 1m to 1y":       {"--backup.to=backups", "--backup.every=59s"},
		"applies to a data directory only; on Cassandra, back up the cluster with docker/cassandra/snapshot": {"--backup.to=backups", "--storage.engine=cassandra", "--cassandra.hosts=h"},
		"the key encrypts backups in a bucket (s3://…) only; backups in a folder aren't encrypted":           {"--backup.to=backups", "--backup.key-file=key"},
		"--backup.to=s3://": {"--backup.to=s3://"},
	} {
		_, err := parse(t, args...)
		require.ErrorContains(t, err, want, args)
	}
}

// TestHosts checks that the host names of a process include the name of its machine and the names on which it listens.
func TestHosts(t *testing.T) {
	c, err := parse(t, "--web.listen-address=127.0.0.1:1", "--web.listen-address=[::1]:2", "--web.listen-address=:3")
	require.NoError(t, err)
	hosts := c.HostNames()
	require.Subset(t, hosts, []string{"127.0.0.1", "::1"})
	require.NotContains(t, hosts, "")
}
