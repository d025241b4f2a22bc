package config

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/adapter/metadata"
)

// MetadataConfigFlag is the name of the flag that sets Metadata.HTTPConfigFile.
const MetadataConfigFlag = "metadata.http.config.file"

// Metadata holds the flags for fetching metric metadata from other servers.
type Metadata struct {
	// Sources are the servers. Their Client fields aren't set yet.
	Sources []metadata.Source
	// HTTPConfigFile is the client configuration file with the credentials for the sources, or empty.
	HTTPConfigFile string

	sources sourceList
}

// sourceList is the value of a flag. It is printed without passwords.
type sourceList []metadata.Source

func (l *sourceList) Set(text string) error {
	s, err := metadata.ParseSource(text)
	if err != nil {
		return fmt.Errorf("--metadata.from: %w", err)
	}
	*l = append(*l, s)
	return nil
}

func (l *sourceList) String() string {
	shown := make([]string, 0, len(*l))
	for _, s := range *l {
		shown = append(shown, s.String())
	}
	return strings.Join(shown, ",")
}

// IsCumulative makes the flag repeatable.
func (l *sourceList) IsCumulative() bool { return true }

// metadataFlags declares the flags for fetching metric metadata.
func metadataFlags(cmd *kingpin.CmdClause, m *Metadata) {
	cmd.Flag("metadata.from",
		"URL of a Prometheus from which to fetch metric metadata (type, unit and help) every two minutes, such as "+
			"http://prometheus:9090, or tenant=URL for the metrics of one tenant. Needed for senders of remote write "+
			"2.0 without metadata. Repeatable.").
		PlaceHolder("URL").SetValue(&m.sources)
	cmd.Flag(MetadataConfigFlag, "Prometheus HTTP client configuration file (as for promtool): how to log in to the "+
		"servers of --metadata.from, and which certificates to trust.").
		PlaceHolder("FILE").StringVar(&m.HTTPConfigFile)
}

func (c *Config) checkMetadata() error {
	m := &c.Metadata
	m.Sources = m.sources
	if len(m.Sources) == 0 {
		return nil
	}
	if c.Target != "all" && c.Target != "write" {
		return flagError("metadata.from", m.sources.String(),
			fmt.Sprintf("a process with --target=%s doesn't receive samples; set it on a process with all or write",
				c.Target))
	}
	return nil
}
