package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// Kingpin's errors for unknown names.
var (
	unknownFlag    = regexp.MustCompile(`^unknown long flag '--(.+)'$`)
	unknownCommand = regexp.MustCompile(`^expected command but got "(.+)"$`)
)

// Explain adds the nearest flag or command to a parse error, and the command that lists all of them.
func Explain(app *kingpin.Application, args []string, err error) error {
	see := app.Name + " --help"
	if topic := (UnknownTopic{}); errors.As(err, &topic) {
		names := topic.Topics
		for _, c := range app.Model().Commands {
			names = append(names, c.Name)
		}
		return suggesting(topic.Error(), nearest(topic.Name, names), app.Name+" help")
	}
	context, _ := app.ParseContext(args) // It fails as before, but the context has the part that was recognized.
	flags, commands := app.Model().Flags, app.Model().Commands
	if context != nil && context.SelectedCommand != nil {
		command := context.SelectedCommand.Model()
		see = app.Name + " " + command.FullCommand + " --help"
		flags, commands = append(flags, command.Flags...), command.Commands
	}
	if m := unknownFlag.FindStringSubmatch(err.Error()); m != nil {
		near := nearest(m[1], flagNames(flags))
		if near != "" {
			near = "--" + near
		}
		return suggesting("unknown flag --"+m[1], near, see)
	}
	if m := unknownCommand.FindStringSubmatch(err.Error()); m != nil {
		var names []string
		for _, c := range commands {
			names = append(names, c.Name)
		}
		return suggesting(fmt.Sprintf("unknown command %q", m[1]), nearest(m[1], names), see)
	}
	return fmt.Errorf("%w; see %s", err, see)
}

// suggesting returns an error with the cause, the name that was probably meant (may be empty), and the command that
// lists all names.
func suggesting(what, near, see string) error {
	if near == "" {
		return fmt.Errorf("%s; see %s", what, see)
	}
	return fmt.Errorf("%s; did you mean %s? See %s", what, near, see)
}

// UnknownTopic is the error for an unknown topic of help.
type UnknownTopic struct {
	Name string
	// Topics are the topics other than commands.
	Topics []string
}

func (e UnknownTopic) Error() string { return fmt.Sprintf("unknown command or topic %q", e.Name) }

// flagNames returns the names that may follow the two hyphens.
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

// nearest returns the name that is most similar to the written one, or else one that ends with it, or "" if no name is
// similar.
func nearest(written string, names []string) string {
	best, least := "", max(2, len(written)/4)+1
	for _, name := range names {
		if d := distance(written, name); d < least {
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

// distance returns the min number of characters to insert, delete, replace, or swap with the next one to turn a into b
// (optimal string alignment).
func distance(a, b string) int {
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
