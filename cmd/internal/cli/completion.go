package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// Shells are the supported shells.
var Shells = []string{"bash", "zsh", "fish"}

// Scripts that get the completions from the program with kingpin's hidden flag --completion-bash. NAME is replaced by
// the name of the program.
const (
	bashScript = `# bash completion for NAME
_NAME_complete() {
	local word=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" --completion-bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$word"))
}
complete -o default -F _NAME_complete NAME
`
	zshScript = `#compdef NAME
_NAME() {
	local -a found
	found=(${(f)"$("${words[1]}" --completion-bash "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
	compadd -- $found
	if (( compstate[nmatches] == 0 )) && [[ $words[CURRENT] != -* ]]; then
		_files
	fi
}
if [[ $funcstack[1] == _NAME ]]; then
	_NAME "$@"
else
	compdef _NAME NAME
fi
`
	fishScript = `# fish completion for NAME
function __NAME_complete
	set -l words (commandline -opc)
	set -l program $words[1]
	set -e words[1]
	$program --completion-bash $words (commandline -ct) 2>/dev/null
end
complete -c NAME -a '(__NAME_complete)'
`
)

// WriteCompletion writes a script that makes a shell complete the commands and flags of the application.
func WriteCompletion(w io.Writer, app *kingpin.ApplicationModel, shell string) error {
	script, ok := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[shell]
	if !ok {
		return fmt.Errorf("no completion for %q; supported shells: %s", shell, strings.Join(Shells, ", "))
	}
	_, err := io.WriteString(w, strings.ReplaceAll(script, "NAME", app.Name))
	return err
}
