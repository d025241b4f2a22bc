package config

import (
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// neededFlag is a group of flags that have no effect without another flag.
type neededFlag struct {
	// flags contains names of flags, or prefixes of names followed by *.
	flags []string
	// of contains alternatives, each as name or name=value. At least one of these flags must be set.
	of []string
	// except contains the commands in which the flags have an effect even if no flag in of is set.
	except []string
}

// neededFlags contains the flags of all commands that have no effect alone. Flags that depend on the process' role
// aren't included, because the processes of a cluster may share one command line.
var neededFlags = []neededFlag{
	{[]string{"backup.*"}, []string{"backup.to"}, nil},
	{[]string{"metadata.http.config.file"}, []string{"metadata.from"}, nil},
	{[]string{"otlp.ignore-resource-attribute"}, []string{"otlp.promote-all-resource-attributes"}, nil},
	{[]string{"alertmanager.bearer-token-file"}, []string{"alertmanager.url"}, nil},
	// alertmanager.url isn't listed because rules may be added later.
	{[]string{"rule.evaluation-interval", "rule.external-label"}, []string{"rule.files"}, nil},
	{[]string{"ha.cluster-label", "ha.replica-label", "ha.failover-timeout", "ha.held-bytes", "ha.max-clusters"},
		[]string{"ha.enabled", "ha.tenant"}, nil},
	{[]string{"cassandra.tls-*"}, []string{"cassandra.tls"}, nil},
	{[]string{"cassandra.password-file"}, []string{"cassandra.username"}, nil},
	{[]string{"cassandra.*"}, []string{"storage.engine=" + EngineCassandra}, []string{"schema print", "schema alter"}},
	{[]string{"storage.today"}, []string{"storage.engine=" + EnginePebble}, nil},
}

// MissingFlags returns the flags that a flag requires. For each requirement, it returns the alternatives as name or
// name=value, at least one of which must be set. Requirements on flags that the command doesn't have are omitted.
func MissingFlags(c *kingpin.CmdModel, flag string) (of [][]string) {
	for _, n := range neededFlags {
		known := slices.ContainsFunc(c.Flags, func(f *kingpin.FlagModel) bool { return n.isOf(f.Name) })
		if known && n.hasFlag(flag) && !slices.Contains(n.except, c.FullCommand) {
			of = append(of, n.of)
		}
	}
	return of
}

// isOf reports whether a flag is one of n.of.
func (n neededFlag) isOf(flag string) bool {
	return slices.ContainsFunc(n.of, func(text string) bool {
		name, _, _ := strings.Cut(text, "=")
		return name == flag
	})
}

// hasFlag reports whether a flag is one of n.flags.
func (n neededFlag) hasFlag(flag string) bool {
	return !n.isOf(flag) && slices.ContainsFunc(n.flags, func(pattern string) bool {
		start, isPrefix := strings.CutSuffix(pattern, "*")
		return flag == pattern || isPrefix && strings.HasPrefix(flag, start)
	})
}

// CheckNeeds returns an error if a flag among a command's arguments has no effect without another flag. It names the
// first such flag.
func CheckNeeds(app *kingpin.Application, c *kingpin.CmdModel, args []string) error {
	context, _ := app.ParseContext(args)
	if context == nil {
		return nil
	}
	values := map[string]string{}
	for _, f := range c.Flags {
		values[f.Name] = strings.Join(f.Default, ",")
	}
	var set []string
	for _, e := range context.Elements {
		if f, ok := e.Clause.(*kingpin.FlagClause); ok && e.Value != nil {
			name := f.Model().Name
			set, values[name] = append(set, name), *e.Value
		}
	}
	for _, name := range set {
		for _, of := range MissingFlags(c, name) {
			if !slices.ContainsFunc(of, func(s string) bool {
				flag, want, exact := strings.Cut(s, "=")
				value := values[flag]
				return exact && value == want || !exact && value != "" && value != "false"
			}) {
				return flagError(name, values[name], "has no effect without --"+strings.Join(of, " or --"))
			}
		}
	}
	return nil
}
