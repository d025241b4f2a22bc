package enginetest

import (
	"strconv"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// formatKey writes a key as text: fields with commas between, texts quoted, "-" for a key without fields.
func formatKey(key engine.Key) string {
	if len(key) == 0 {
		return "-"
	}
	var b strings.Builder
	for i, v := range key {
		if i > 0 {
			b.WriteByte(',')
		}
		// An empty text can't be told from a zero by itself: readers know the field's kind.
		if v.Text != "" {
			b.WriteString(strconv.Quote(v.Text))
		} else {
			b.WriteString(strconv.FormatInt(v.Int, 10))
		}
	}
	return b.String()
}
