package cassandra

import (
	"fmt"
	"log/slog"
	"strings"
)

// logger writes gocql's log to slog as debug messages, because gocql logs every broken connection at length. The engine
// itself logs nodes that go down or come up: see nodes.
type logger struct{ log *slog.Logger }

func (l logger) Print(v ...any)                 { l.debug(fmt.Sprint(v...)) }
func (l logger) Printf(format string, v ...any) { l.debug(fmt.Sprintf(format, v...)) }
func (l logger) Println(v ...any)               { l.debug(fmt.Sprintln(v...)) }

func (l logger) debug(text string) { l.log.Debug(strings.TrimSpace(text)) }
