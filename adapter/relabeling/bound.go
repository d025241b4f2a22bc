package relabeling

import (
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/cassia-db/cassia/storage"
)

// maxText bounds the labels of a series while rules apply to it, bytes: four times those that the store takes, as rules may join labels
// and drop the result. Without a bound 22 rules that double a label exceed what labels can be, and a few more all memory.
const maxText = 256 << 10

// labelWeight is what a label counts of maxText besides its text: rules look through all labels for each that they set.
const labelWeight = 64

// applied are the labels of a series while rules apply to them.
type applied struct {
	b *labels.Builder
	// size is at least what they count of maxText.
	size int
}

func newApplied(b *labels.Builder) applied {
	a := applied{b: b}
	a.weigh()
	return a
}

func (a *applied) weigh() {
	a.size = 0
	a.b.Range(func(l labels.Label) { a.size += len(l.Name) + len(l.Value) + labelWeight })
}

// process applies a rule; keep is false if it drops the series. It returns a *storage.LabelError, without the series, where the labels might become
// longer than maxText.
func (a *applied) process(number int, c *relabel.Config) (keep bool, err error) {
	more := a.growth(c)
	if more > 0 && a.size+more > maxText {
		if a.weigh(); a.size+more > maxText {
			return false, &storage.LabelError{Reason: storage.ReasonSeriesTooLong,
				Detail: fmt.Sprintf("relabeling rule %d may create labels longer than %d bytes", number, maxText)}
		}
	}
	a.size += more
	return relabel.ProcessBuilder(a.b, c), nil
}

// growth returns by how much a rule makes labels longer at most; beyond maxText it may be less.
func (a *applied) growth(c *relabel.Config) int {
	source := max(0, len(c.SourceLabels)-1) * len(c.Separator)
	for _, name := range c.SourceLabels {
		if source += len(a.b.Get(string(name))); source > max(maxText, a.size) { // Some label is named very often.
			return source
		}
	}
	switch c.Action {
	case relabel.Replace:
		refs := strings.Count(c.TargetLabel, "$") + strings.Count(c.Replacement, "$")
		return labelWeight + len(c.TargetLabel) + len(c.Replacement) + refs*source
	case relabel.Lowercase, relabel.Uppercase: // Some letters are longer in the other case.
		return labelWeight + len(c.TargetLabel) + 3*source
	case relabel.HashMod:
		return labelWeight + len(c.TargetLabel) + 20
	case relabel.LabelMap:
		more, refs := 0, strings.Count(c.Replacement, "$")
		a.b.Range(func(l labels.Label) { more += labelWeight + len(c.Replacement) + refs*len(l.Name) + len(l.Value) })
		return more
	}
	return 0
}
