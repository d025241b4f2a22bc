package config

import (
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// need is a group of flags that have no effect without another flag.
type need struct {
	// flags are names of flags, or prefixes that end with *.
	flags []string
	// of are the alternative flags, at least one of them is required, as name or name=value.
	of []string
	// except are commands in which the flags have an effect without the others.
	except []string
}

// needs are the flags of all commands that have no effect alone. Flags that depend on the process' role aren't
// included, because the processes of one cluster may share a command line.
var needs = []need{
	{[]string{"backup.*"}, []string{"backup.to"}, nil},
	{[]string{"metadata.http.config.file"}, []string{"metadata.from"}, nil},
	{[]string{"otlp.ignore-resource-attribute"}, []string{"otlp.promote-all-resource-attributes"}, nil},
	{[]string{"alertmanager.bearer-token-file"}, []string{"alertmanager.url"}, nil},
	// alertmanager.url isn't listed: rules may be added later.
	{[]string{"rule.evaluation-interval", "rule.external-label"}, []string{"rule.files"}, nil},
	{[]string{"ha.cluster-label", "ha.replica-label", "ha.failover-timeout", "ha.held-bytes", "ha.max-clusters"},
		[]string{"ha.enabled", "ha.tenant"}, nil},
	{[]string{"cassandra.tls-*"}, []string{"cassandra.tls"}, nil},
	{[]string{"cassandra.password-file"}, []string{"cassandra.username"}, nil},
	{[]string{"cassandra.*"}, []string{"storage.engine=" + EngineCassandra}, []string{"schema print", "schema alter"}},
	{[]string{"storage.today"}, []string{"storage.engine=" + EnginePebble}, nil},
}

// MissingFlags returns, per requirement of a flag, the alternative flags (name or name=value); at least one of them
// must also be set. Requirements that the command has no flags for are left out.
func MissingFlags(c *kingpin.CmdModel, flag string) (of [][]string) {
	for _, n := range needs {
		known := slices.ContainsFunc(c.Flags, func(f *kingpin.FlagModel) bool { return n.isOf(f.Name) })
		if known && n.hasFlag(flag) && !slices.Contains(n.except, c.FullCommand) {
			of = append(of, n.of)
		}
	}
	return of
}

// isOf reports whether a flag is one of n.of.
func (n need) isOf(flag string) bool {
	return slices.ContainsFunc(n.of, func(text string) bool {
		name, _, _ := strings.Cut(text, "=")
		return name == flag
	})
}

// hasFlag reports whether a flag is one of n.flags.
func (n need) hasFlag(flag string) bool {
	return !n.isOf(flag) && slices.ContainsFunc(n.flags, func(pattern string) bool {
		start, isPrefix := strings.CutSuffix(pattern, "*")
		return flag == pattern || isPrefix && strings.HasPrefix(flag, start)
	})
}

// CheckNeeds returns an error that names the first flag among the arguments of a command that has no effect without
// another flag.
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
