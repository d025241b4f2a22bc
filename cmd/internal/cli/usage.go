package cli

import (
	"strings"
	"text/template"

	"github.com/alecthomas/kingpin/v2"
)

// usageTemplate lists the application's commands, one per line, or shows one command with its flags in groups.
const usageTemplate = `{{define "Arguments"}}{{range .Flags}}{{if and .Required (not .Hidden)}} {{. | FlagSyntax}}{{end}}{{end}} [<flags>]
{{- range .Args}}{{if not .Hidden}} {{. | ArgumentSyntax}}{{end}}{{end}}{{if .Commands}} <command>{{end}}{{end -}}
{{define "Flags"}}{{range . | FlagGroups}}
{{.Title}}:
{{.Flags | FlagRows | FormatTwoColumns}}{{end}}{{end -}}
{{if .Context.SelectedCommand -}}
usage: {{.App.Name}} {{.Context.SelectedCommand}}{{template "Arguments" .Context.SelectedCommand}}

{{.Context.SelectedCommand.Help | Wrap 0 -}}
{{if .Context.SelectedCommand.Commands}}
Commands:
{{.Context.SelectedCommand.FlattenedCommands | CommandRows | FormatTwoColumns}}{{end -}}
{{if .Context.Args}}
Arguments:
{{.Context.Args | ArgsToTwoColumns | FormatTwoColumns}}{{end -}}
{{template "Flags" .Context.Flags -}}
{{else -}}
usage: {{.App.Name}} <command> [<flags>]

{{.App.Help | Wrap 0 -}}
{{range .App | CommandGroups}}
{{.Title}}:
{{.Commands | CommandRows | FormatTwoColumns}}{{end -}}
{{template "Flags" .Context.Flags}}
` + "`{{.App.Name}} COMMAND --help`" + ` shows a command's flags.{{Topics}}
{{end -}}
`

// SetUsage sets the usage texts of the application. topics returns the text after the list of commands, which may be
// empty.
func SetUsage(app *kingpin.Application, topics func() string) {
	app.UsageTemplate(usageTemplate).UsageFuncs(template.FuncMap{
		"CommandGroups": CommandGroups, "FlagGroups": FlagGroups, "FlagSyntax": flagSyntax,
		"ArgumentSyntax": argumentSyntax,
		"Topics":         topics,
		"FlagRows": func(flags []*kingpin.FlagModel) (rows [][2]string) {
			for _, f := range flags {
				rows = append(rows, [2]string{flagSyntax(f), f.HelpWithEnvar()})
			}
			return rows
		},
		"CommandRows": func(commands []*kingpin.CmdModel) (rows [][2]string) {
			for _, c := range commands {
				if !c.Hidden {
					rows = append(rows, [2]string{c.FullCommand, firstSentence(c.Help)})
				}
			}
			return rows
		},
	})
}

// flagSyntax returns the syntax of a flag with its default as the value, as in --query.timeout=2m.
func flagSyntax(f *kingpin.FlagModel) string {
	out := "--" + f.Name
	switch {
	case f.IsBoolFlag() && f.Name != "help" && f.Name != "version":
		out = "--[no-]" + f.Name
	case !f.IsBoolFlag():
		out += "=" + valueSyntax(f)
	}
	if f.Short != 0 {
		out = "-" + string(f.Short) + ", " + out
	}
	if isCumulative(f.Value) {
		out += " ..."
	}
	return out
}

func valueSyntax(f *kingpin.FlagModel) string {
	switch {
	case f.PlaceHolder != "":
		return f.PlaceHolder
	case len(f.Default) > 0 && f.Default[0] != "":
		return strings.Join(f.Default, ",")
	}
	return "VALUE"
}

func argumentSyntax(a *kingpin.ArgModel) string {
	out := a.PlaceHolder
	if out == "" {
		out = "<" + a.Name + ">"
	}
	if isCumulative(a.Value) {
		out += "..."
	}
	if !a.Required {
		out = "[" + out + "]"
	}
	return out
}

// isCumulative reports whether a flag or an argument can be repeated.
func isCumulative(v kingpin.Value) bool {
	c, ok := v.(interface{ IsCumulative() bool })
	return ok && c.IsCumulative()
}

// firstSentence returns the text up to the first period or colon that a space follows.
func firstSentence(text string) string {
	for i := range len(text) - 1 {
		if (text[i] == '.' || text[i] == ':') && text[i+1] == ' ' {
			return text[:i] + "."
		}
	}
	return text
}
