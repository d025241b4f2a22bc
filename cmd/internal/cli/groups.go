package cli

import (
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// CommandGroup is a group of commands in the usage text.
type CommandGroup struct {
	Title    string
	Commands []*kingpin.CmdModel
}

// FlagGroup is a group of flags in the usage text of a command.
type FlagGroup struct {
	Title string
	Flags []*kingpin.FlagModel
}

// commandGroups contains the groups in the order in which they are shown, the most used first. A command's name
// includes its subcommands.
var commandGroups = []struct {
	title string
	names []string
}{
	{"Run and operate a server", []string{"serve", "check", "doctor", "healthcheck", "backup", "restore"}},
	{"Import and export samples", []string{"import", "export"}},
	{"Maintenance", []string{"retention", "relabel", "downsample", "inspect", "schema"}},
	{otherCommands, []string{"bench", "help", "version", "completion", "man"}},
}

// otherCommands is the title of the group of all other commands.
const otherCommands = "More"

// CommandGroups returns the runnable commands in their groups, except hidden commands.
func CommandGroups(app *kingpin.ApplicationModel) []CommandGroup {
	of := map[string][]*kingpin.CmdModel{}
	for _, c := range app.FlattenedCommands() {
		if !c.Hidden {
			first, _, _ := strings.Cut(c.FullCommand, " ")
			of[first] = append(of[first], c)
		}
	}
	out := make([]CommandGroup, len(commandGroups))
	for i, g := range commandGroups {
		out[i].Title = g.title
		for _, name := range g.names {
			out[i].Commands = append(out[i].Commands, of[name]...)
			delete(of, name)
		}
	}
	last := &out[len(out)-1]
	for _, c := range app.FlattenedCommands() { // These are in the order of declaration.
		if first, _, _ := strings.Cut(c.FullCommand, " "); len(of[first]) > 0 {
			last.Commands = append(last.Commands, of[first]...)
			delete(of, first)
		}
	}
	return out
}

// Titles of groups of flags that aren't derived from a prefix.
const (
	ownFlags     = "Flags"
	generalFlags = "General"
)

// flagGroups contains the groups in the order in which they are shown. names contains names of flags, or the part of
// their names before a dot.
var flagGroups = []struct {
	title string
	names []string
}{
	{ownFlags, nil},
	{"Web", []string{"web."}},
	{"Storage", []string{"storage.", "memory.", "target"}},
	{"Retention", []string{"retention."}},
	{"Queries", []string{"query.", "remote-read.", "enable-feature"}},
	{"Tenants", []string{"tenants.", "limits.", "auth."}},
	{"High availability (pairs of Prometheus)", []string{"ha."}},
	{"Rules and alerts", []string{"rule.", "alertmanager."}},
	{"Writes", []string{"write.", "otlp.", "metadata."}},
	{"Backup", []string{"backup."}},
	{"Cassandra", []string{"cassandra."}},
	{"KairosDB", []string{"kairosdb."}},
	{"Log and Cassia's own metrics", []string{"log.", "self-monitoring"}},
	{generalFlags, []string{"help", "version"}},
}

// groupOf returns the title of a flag's group.
func groupOf(flag string) string {
	for _, g := range flagGroups {
		for _, name := range g.names {
			if flag == name || strings.HasSuffix(name, ".") && strings.HasPrefix(flag, name) {
				return g.title
			}
		}
	}
	return ownFlags
}

// FlagGroups returns flags in their groups, except hidden flags. The flags of a command that aren't in any group of the
// server's flags come first.
func FlagGroups(flags []*kingpin.FlagModel) (out []FlagGroup) {
	of := map[string][]*kingpin.FlagModel{}
	for _, f := range flags {
		if !f.Hidden {
			of[groupOf(f.Name)] = append(of[groupOf(f.Name)], f)
		}
	}
	for _, g := range flagGroups {
		if len(of[g.title]) > 0 {
			out = append(out, FlagGroup{g.title, of[g.title]})
		}
	}
	return out
}
