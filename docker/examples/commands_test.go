// Package examples checks the files in the folder examples, with the libraries of the programs that read them.
package examples

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const folder = "../../examples"

// golden is the file with the cassia command lines of the examples. A test in cmd/cassia checks them against the flags
// of the program.
const golden = "testdata/commands.json"

var rewrite = flag.Bool("rewrite", false, "write the command lines of cassia in the examples to testdata")

// command is a cassia command line.
type command struct {
	// File and Name locate the command line.
	File string `json:"file"`
	Name string `json:"name"`
	// Args contains the arguments after "cassia". Variables are replaced with their values.
	Args []string `json:"args"`
	// Secrets contains the environment variables that are set from secrets.
	Secrets []string `json:"secrets,omitempty"`
	// Port is the port on which a server listens. It is empty for other commands.
	Port string `json:"port,omitempty"`
	// Files contains the files in the manifests by path.
	Files map[string]string `json:"files,omitempty"`
	// Scrape contains the ways in which the Prometheus operator scrapes the server.
	Scrape []scrape `json:"scrape,omitempty"`
}

// scrape is how a server is scraped. Token and CA are keys of Secrets, in the form NAME/KEY.
type scrape struct {
	Scheme     string `json:"scheme"`
	Path       string `json:"path"`
	Token      string `json:"token,omitempty"`
	CA         string `json:"ca,omitempty"`
	ServerName string `json:"serverName,omitempty"`
}

// TestCommands compares the command lines of the examples with the golden file. To update the file: go test . -rewrite.
func TestCommands(t *testing.T) {
	all := slices.Concat(unitCommands(t), []command{composeCommand(t)}, manifestCommands(t))
	var got bytes.Buffer
	encoder := json.NewEncoder(&got)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(all))
	if *rewrite {
		require.NoError(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String(), "go test . -rewrite in docker/examples, and look at what has changed")
}

// flagOf returns the value of a flag. If the arguments don't contain the flag, it returns otherwise.
func flagOf(args []string, name, otherwise string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	return otherwise
}

// portOf returns the port on which a server with these arguments listens.
func portOf(args []string) string {
	address := flagOf(args, "web.listen-address", "127.0.0.1:9201")
	return address[strings.LastIndexByte(address, ':')+1:]
}
