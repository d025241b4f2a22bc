package relabeling

import (
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/cassia-db/cassia/storage"
)

// maxText bounds the labels of a series in bytes while rules are applied: four times the store's limit, because rules
// may join labels and drop the result. Without a bound, 22 rules that double a label would exceed the max size of
// labels, and a few more would exhaust the memory.
const maxText = 256 << 10

// labelWeight counts against maxText per label, in addition to its text: rules search all labels for each label they
// set.
const labelWeight = 64

// ruleInput holds the labels of a series while rules are applied.
type ruleInput struct {
	b *labels.Builder
	// size is an upper bound of the labels' text plus labelWeight per label; maxText limits it.
	size int
}

func newRuleInput(b *labels.Builder) ruleInput {
	a := ruleInput{b: b}
	a.measureLabels()
	return a
}

func (r *ruleInput) measureLabels() {
	r.size = 0
	r.b.Range(func(l labels.Label) { r.size += len(l.Name) + len(l.Value) + labelWeight })
}

// applyRule applies a rule; keep is false if the rule drops the series. If the labels could exceed maxText, it returns
// a *storage.LabelError without the series.
func (r *ruleInput) applyRule(number int, c *relabel.Config) (keep bool, err error) {
	more := r.maxGrowth(c)
	if more > 0 && r.size+more > maxText {
		if r.measureLabels(); r.size+more > maxText {
			return false, &storage.LabelError{Reason: storage.ReasonSeriesTooLong,
				Detail: fmt.Sprintf("relabeling rule %d may create labels longer than %d bytes", number, maxText)}
		}
	}
	r.size += more
	return relabel.ProcessBuilder(r.b, c), nil
}

// maxGrowth returns an upper bound of the bytes that a rule adds to the labels. If the rule may add more than maxText,
// maxGrowth may return any number above maxText: the rule is rejected in any case.
func (r *ruleInput) maxGrowth(c *relabel.Config) int {
	source := max(0, len(c.SourceLabels)-1) * len(c.Separator)
	for _, name := range c.SourceLabels {
		if source += len(r.b.Get(string(name))); source > max(maxText, r.size) { // some label is referenced very often
			return source
		}
	}
	switch c.Action {
	case relabel.Replace:
		refs := strings.Count(c.TargetLabel, "$") + strings.Count(c.Replacement, "$")
		return labelWeight + len(c.TargetLabel) + len(c.Replacement) + refs*source
	case relabel.Lowercase, relabel.Uppercase: // some letters have more bytes in the other case
		return labelWeight + len(c.TargetLabel) + 3*source
	case relabel.HashMod:
		return labelWeight + len(c.TargetLabel) + 20
	case relabel.LabelMap:
		more, refs := 0, strings.Count(c.Replacement, "$")
		r.b.Range(func(l labels.Label) { more += labelWeight + len(c.Replacement) + refs*len(l.Name) + len(l.Value) })
		return more
	}
	return 0
}
