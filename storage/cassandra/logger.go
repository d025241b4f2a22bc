package cassandra

import (
	"fmt"
	"log/slog"
	"strings"
)

// logger passes gocql's log to slog. gocql logs every broken connection at length. Nodes that stop and start are logged
// by the engine itself: see nodes.
type logger struct{ log *slog.Logger }

func (l logger) Print(v ...any)                 { l.debug(fmt.Sprint(v...)) }
func (l logger) Printf(format string, v ...any) { l.debug(fmt.Sprintf(format, v...)) }
func (l logger) Println(v ...any)               { l.debug(fmt.Sprintln(v...)) }

func (l logger) debug(text string) { l.log.Debug(strings.TrimSpace(text)) }
