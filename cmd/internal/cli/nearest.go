package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// unknownFlag and unknownCommand match kingpin's errors for unknown names.
var (
	unknownFlag    = regexp.MustCompile(`^unknown long flag '--(.+)'$`)
	unknownCommand = regexp.MustCompile(`^expected command but got "(.+)"$`)
)

// ExplainError adds the most similar flag or command to a parse error, and the command that lists all names.
func ExplainError(app *kingpin.Application, args []string, err error) error {
	see := app.Name + " --help"
	if topic := (UnknownTopic{}); errors.As(err, &topic) {
		names := topic.Topics
		for _, c := range app.Model().Commands {
			names = append(names, c.Name)
		}
		return suggestionError(topic.Error(), nearestName(topic.Name, names), app.Name+" help")
	}
	context, _ := app.ParseContext(args) // It fails again, but the context contains the recognized part.
	flags, commands := app.Model().Flags, app.Model().Commands
	if context != nil && context.SelectedCommand != nil {
		command := context.SelectedCommand.Model()
		see = app.Name + " " + command.FullCommand + " --help"
		flags, commands = append(flags, command.Flags...), command.Commands
	}
	if m := unknownFlag.FindStringSubmatch(err.Error()); m != nil {
		near := nearestName(m[1], flagNames(flags))
		if near != "" {
			near = "--" + near
		}
		return suggestionError("unknown flag --"+m[1], near, see)
	}
	if m := unknownCommand.FindStringSubmatch(err.Error()); m != nil {
		var names []string
		for _, c := range commands {
			names = append(names, c.Name)
		}
		return suggestionError(fmt.Sprintf("unknown command %q", m[1]), nearestName(m[1], names), see)
	}
	return fmt.Errorf("%w; see %s", err, see)
}

// suggestionError returns an error with the cause, the suggested name (may be empty), and the command that lists all
// names.
func suggestionError(what, near, see string) error {
	if near == "" {
		return fmt.Errorf("%s; see %s", what, see)
	}
	return fmt.Errorf("%s; did you mean %s? See %s", what, near, see)
}

// UnknownTopic is the error for an unknown help topic.
type UnknownTopic struct {
	Name string
	// Topics contains the topics other than commands.
	Topics []string
}

func (u UnknownTopic) Error() string { return fmt.Sprintf("unknown command or topic %q", u.Name) }

// flagNames returns the valid names after the two hyphens.
func flagNames(flags []*kingpin.FlagModel) (names []string) {
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		names = append(names, f.Name)
		if f.IsBoolFlag() {
			names = append(names, "no-"+f.Name)
		}
	}
	return names
}

// nearestName returns the name that is most similar to the given name. If no name is similar, it returns a name that
// ends with the given name, or "".
func nearestName(written string, names []string) string {
	best, least := "", max(2, len(written)/4)+1
	for _, name := range names {
		if d := editDistance(written, name); d < least {
			best, least = name, d
		}
	}
	if best != "" {
		return best
	}
	for _, name := range names {
		if strings.HasSuffix(name, "."+written) || strings.HasSuffix(name, "-"+written) {
			return name
		}
	}
	return ""
}

// editDistance returns the min number of edits that turn a into b: insertions, deletions and replacements of a
// character, and swaps of adjacent characters (optimal string alignment).
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
