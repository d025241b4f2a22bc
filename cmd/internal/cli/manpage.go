package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// Variable is an environment variable that the program reads.
type Variable struct{ Name, Effect string }

// ManPage writes the man page (section 1) of the application, with the macros of man(7).
func ManPage(w io.Writer, app *kingpin.ApplicationModel, version string, variables []Variable, topics []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", strings.ToUpper(app.Name),
		escapeRoff(app.Name), escapeRoff(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", app.Name, escapeRoff(strings.TrimSuffix(app.Help, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I command\n[\\fIflags\\fR]\n", app.Name)
	b.WriteString(".SH DESCRIPTION\n")
	for _, group := range CommandGroups(app) {
		fmt.Fprintf(&b, ".SS %s\n", escapeRoff(group.Title))
		for _, c := range group.Commands {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escapeRoff(c.FullCommand), escapeRoff(firstSentence(c.Help)))
		}
	}
	b.WriteString(".SH COMMANDS\n")
	for _, group := range CommandGroups(app) {
		for _, c := range group.Commands {
			fmt.Fprintf(&b, ".SS %s\n%s\n", escapeRoff(synopsisOf(app.Name, c)), escapeRoff(c.Help))
			for _, flags := range FlagGroups(c.Flags) {
				if flags.Title != ownFlags {
					fmt.Fprintf(&b, ".PP\n.I %s\n", escapeRoff(flags.Title))
				}
				for _, f := range flags.Flags {
					fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escapeRoff(flagSyntax(f)), escapeRoff(f.HelpWithEnvar()))
				}
			}
		}
	}
	b.WriteString(".SH OPTIONS\nAll commands accept these options:\n")
	for _, f := range app.Flags {
		if !f.Hidden {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escapeRoff(flagSyntax(f)), escapeRoff(f.Help))
		}
	}
	b.WriteString(".SH \"EXIT STATUS\"\n0 on success, 1 if the command failed or reported an error.\n")
	b.WriteString(".SH ENVIRONMENT\n")
	for _, v := range variables {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escapeRoff(v.Name), escapeRoff(v.Effect))
	}
	if len(topics) > 0 {
		fmt.Fprintf(&b,
			".SH \"SEE ALSO\"\n.B %s help\n.I topic\nprints a page of the manual. A server shows the manual at "+
				"/manual. Topics: %s.\n",
			app.Name, escapeRoff(strings.Join(topics, ", ")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func synopsisOf(app string, c *kingpin.CmdModel) string {
	out := app + " " + c.FullCommand
	for _, f := range c.Flags {
		if f.Required && !f.Hidden {
			out += " " + flagSyntax(f)
		}
	}
	for _, a := range c.Args {
		if !a.Hidden {
			out += " " + argumentSyntax(a)
		}
	}
	return out
}

// escapeRoff escapes text for troff, including a control character at the start of a line.
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}
