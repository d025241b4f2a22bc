# Completions of cassia for fish: the program says what may come next.
complete -c cassia -f -a '(set -l words (commandline -opc); $words[1] --completion-bash $words[2..-1] (commandline -ct))'
