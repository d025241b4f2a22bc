package ruler

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/template"

	"github.com/cassia-db/cassia/promql/ruler/alerttext"
	"github.com/cassia-db/cassia/storage/tenant"
)

// These constants bound alerts. Prometheus has no such bounds: it panics if labels exceed 16 MiB, and an endless
// template takes all memory.
const (
	// maxAlertLabels is the maximum size of all labels of an alert. It equals the maximum for the labels of a stored
	// series. maxAnnotations is the maximum size of all annotations of an alert. Both are numbers of bytes of names and
	// values.
	maxAlertLabels = 64 << 10
	maxAnnotations = 64 << 10
	// maxAlertTexts is the maximum size of labels and annotations of all alerts of a rule together, in bytes.
	maxAlertTexts = 64 << 20
)

// errNoEvaluation means that an alerting rule was evaluated without an evaluation in its context, so its alerts can't
// be checked against the bounds.
var errNoEvaluation = errors.New("ruler: an alerting rule must be evaluated with Evaluate")

// alertCheck checks the alerts of a rule before Prometheus creates them.
type alertCheck struct {
	r    *Ruler
	ctx  context.Context
	rule *rules.AlertingRule
	at   time.Time
	// maxValue is the maximum length of a label value. exact is true if every template must be expanded, even if an
	// estimate shows that its result is small.
	maxValue int
	exact    bool
	external map[string]string
	url      *url.URL
	// outer is the length of all values that templates may show, except for the values of the alert's sample.
	outer int
	work  alerttext.WorkCounter
}

// checkAlerts returns an error that wraps alerttext.ErrTooLarge if the samples of a rule's expression would become
// alerts that exceed the bounds. Templates whose results are certainly short are expanded only by Prometheus. All
// others are expanded here first, in a bounded way. checkAlerts returns the error of admit, which it calls with the
// sizes of all alerts together. If admit returns an error for estimated sizes, it is called again with exact ones.
func (r *Ruler) checkAlerts(ctx context.Context, rule *rules.AlertingRule, found promengine.Vector,
	at time.Time, admit func(alertTexts) error) error {
	external := r.externalURL(tenant.FromContext(ctx))
	c := alertCheck{
		r: r, ctx: ctx, url: external, rule: rule, at: at, maxValue: min(r.store.MaxLabelValue(tenant.FromContext(ctx)),
			maxAlertLabels),
		external: r.o.ExternalLabels.Map(), outer: labelsTextLength(r.o.ExternalLabels) + len(external.String()),
	}
	for {
		texts := alertTexts{alerts: len(found)}
		for i := range found {
			if err := c.addAlert(&found[i], &texts); err != nil {
				return err
			}
		}
		if texts.total() <= maxAlertTexts {
			if err := admit(texts); err == nil || c.exact {
				return err
			}
		} else if c.exact {
			return fmt.Errorf(
				"%w: the alerts of rule %q have %d bytes; the maximum is %d. Change its expression to return fewer "+
					"series",
				alerttext.ErrTooLarge, rule.Name(), texts.total(), maxAlertTexts,
			)
		}
		c.exact = true // The sums consisted of estimates.
	}
}

// addAlert adds an upper bound of the size of the labels and annotations of a sample's alert to texts.
func (c *alertCheck) addAlert(s *promengine.Sample, texts *alertTexts) (err error) {
	shown := c.outer + labelsTextLength(s.Metric)
	if s.H != nil {
		shown += histogramTextLength(s)
	}
	longest, total := "", 0
	s.Metric.Range(func(l labels.Label) {
		if total += len(l.Name) + len(l.Value); len(l.Value) > c.maxValue {
			longest = l.Name
		}
	})
	if longest != "" {
		return c.tooLargeError("label", longest, len(s.Metric.Get(longest)), c.maxValue)
	}
	if total, err = c.addSizes("label", c.rule.Labels(), s, shown, total+len(labels.AlertName)+len(c.rule.Name()),
		c.maxValue, maxAlertLabels); err != nil {
		return err
	}
	annotations, err := c.addSizes("annotation", c.rule.Annotations(), s, shown, 0, maxAnnotations, maxAnnotations)
	texts.labels = min(texts.labels+total, alerttext.Unbounded)
	texts.annotations = min(texts.annotations+annotations, alerttext.Unbounded)
	return err
}

// growthOf returns the growth of a text of an alert. It is computed once per text.
func (r *Ruler) growthOf(text string) alerttext.Growth {
	if known, ok := r.growths.Load(text); ok {
		return known.(alerttext.Growth)
	}
	g := alerttext.GrowthOf(text)
	r.growths.Store(text, g)
	return g
}

// addSizes adds the sizes of all labels, or all annotations, to total. It returns an error if one label or annotation
// exceeds maxEach bytes, or all together exceed maxAll bytes.
func (c *alertCheck) addSizes(kind string, texts labels.Labels,
	s *promengine.Sample, shown, total, maxEach, maxAll int) (int, error) {
	estimated := total
	if !c.exact {
		fits := true
		texts.Range(func(l labels.Label) {
			n := c.r.growthOf(l.Value).MaxLength(shown)
			fits = fits && n <= maxEach
			estimated = min(estimated+len(l.Name)+n, alerttext.Unbounded)
		})
		if fits && estimated <= maxAll {
			return estimated, nil
		}
	}
	var err error
	texts.Range(func(l labels.Label) {
		if err != nil {
			return
		}
		n := 0
		if n, err = c.expandedLength(l.Value, maxEach, s); err != nil {
			err = fmt.Errorf("%s %q of rule %q: %w", kind, l.Name, c.rule.Name(), err)
			return
		}
		if total += len(l.Name) + n; total > maxAll {
			err = c.tooLargeError("all "+kind+"s with", l.Name, total, maxAll)
		}
	})
	return total, err
}

func (c *alertCheck) tooLargeError(what, name string, n, most int) error {
	return fmt.Errorf("%w: %s %q of rule %q: it has %d bytes; the maximum is %d", alerttext.ErrTooLarge, what, name,
		c.rule.Name(), n, most)
}

// expandedLength returns the length of the expanded text of a label or an annotation. most is the maximum length. If
// the text is longer, an error is returned.
func (c *alertCheck) expandedLength(text string, most int, s *promengine.Sample) (int, error) {
	if !strings.Contains(text, "{{") {
		if len(text) > most {
			return 0, fmt.Errorf("%w: the text has more than %d bytes", alerttext.ErrTooLarge, most)
		}
		return len(text), nil
	}
	name := "__alert_" + c.rule.Name()
	t := evaluationOf(c.ctx)
	if t == nil {
		return 0, errNoEvaluation
	}
	defer t.finishTemplate()
	x := alerttext.NewExpansion(c.ctx, &c.work, most, t.useQueried)
	bounded, err := x.Bound(name, alerttext.Definitions+text)
	if err != nil {
		return len(err.Error()), nil // Prometheus replaces the text by the error.
	}
	data := template.AlertTemplateData(s.Metric.Map(), c.external, c.url.String(), *s)
	tmpl := template.NewTemplateExpander(c.ctx, bounded, name, data, model.Time(timestamp.FromTime(c.at)),
		x.CountQuery(c.r.ruleQuery), c.url, nil)
	tmpl.Funcs(x.Functions())
	_, err = tmpl.Expand()
	switch {
	case c.ctx.Err() != nil:
		return 0, c.ctx.Err()
	case x.Refused() != nil:
		return 0, x.Refused()
	case err != nil:
		return len(err.Error()), nil
	}
	return x.Length(), nil
}

// labelsTextLength returns the approximate length of the text of labels in bytes, for templates that show all labels.
func labelsTextLength(ls labels.Labels) (n int) {
	ls.Range(func(l labels.Label) { n += len(l.Name) + len(l.Value) + 8 })
	return n
}

// histogramTextLength returns the approximate length of the text of a native histogram in bytes, for templates that
// show it.
func histogramTextLength(s *promengine.Sample) int {
	return 1024 + 64*(len(s.H.PositiveBuckets)+len(s.H.NegativeBuckets)+len(s.H.PositiveSpans)+len(s.H.NegativeSpans)+
		len(s.H.CustomValues))
}
