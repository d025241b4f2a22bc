package storage

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/tenant"
)

// A label value that is too long is truncated to the following form, if the tenant's limits allow it. The hash is the
// first 64 bits of the SHA-256 of the whole value:
//
//	+--------------------+-------------------------+
//	| start of the value | (hash:89abcdef01234567) |
//	+--------------------+-------------------------+
const (
	hashForm  = "(hash:%x)"
	hashBytes = 8
	hashText  = len("(hash:)") + 2*hashBytes
)

// maxNamedTruncations is the maximum number of labels whose truncation is logged.
const maxNamedTruncations = 1000

// truncateValue returns a label value of at most limit bytes: v itself if it is short enough, otherwise the start of v
// followed by a hash of the whole value. The hash keeps different values distinct. truncateValue returns v unchanged if
// v isn't valid UTF-8 or if limit is too small for a hash.
func truncateValue(v string, limit int) string {
	if len(v) <= limit || limit < hashText || !utf8.ValidString(v) {
		return v
	}
	end := limit - hashText
	for !utf8.RuneStart(v[end]) {
		end--
	}
	sum := sha256.Sum256([]byte(v))
	return v[:end] + fmt.Sprintf(hashForm, sum[:hashBytes])
}

// truncateValues returns ls with long values truncated, if the bounds allow it. The metric name is never truncated.
// note, if set, is called for each truncated value.
func truncateValues(ls labels.Labels, most labelBounds, note func(label string)) labels.Labels {
	if !most.truncates {
		return ls
	}
	long := false
	ls.Range(func(l labels.Label) { long = long || len(l.Value) > most.value && l.Name != labels.MetricName })
	if !long {
		return ls
	}
	if _, twice := ls.HasDuplicateLabelNames(); twice {
		return ls // These labels can't name a series anyway.
	}
	b := labels.NewBuilder(ls)
	ls.Range(func(l labels.Label) {
		if l.Name == labels.MetricName {
			return
		}
		if v := truncateValue(l.Value, most.value); v != l.Value {
			b.Set(l.Name, v)
			if note != nil {
				note(l.Name)
			}
		}
	})
	return b.Labels()
}

// truncateLabels truncates a series' label values to the tenant's limits, and counts the truncated values. It returns
// the resulting labels.
func (s *Store) truncateLabels(name string, ls labels.Labels, most labelBounds) labels.Labels {
	return truncateValues(
		ls, most, func(label string) { s.countTruncated(name, label, ls.Get(labels.MetricName), most.value) },
	)
}

// TruncateAttribute truncates the value of an attribute to the tenant's limit for label values, and counts the
// truncation. An attribute describes a whole process, so rejecting it would reject all samples of the process.
// Attributes are therefore truncated unless the tenant's limits reject long values.
func (s *Store) TruncateAttribute(name, attribute, value string) string {
	if s.opts.Limiter.LimitsOf(name).LongLabelValues == tenant.RejectLongLabelValues {
		return value
	}
	limit := s.opts.labelBounds(name).value
	v := truncateValue(value, limit)
	if v != value {
		s.countTruncated(name, attribute, "", limit)
	}
	return v
}

// truncations are the labels whose truncation was logged, by tenant and label.
type truncations struct {
	mu    sync.Mutex
	named map[[2]string]bool
}

// isNew reports whether a truncation must be logged. This is the case for the first truncation of a label, unless
// maxNamedTruncations labels were already logged.
func (t *truncations) isNew(name, label string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [2]string{name, label}
	if t.named[key] || len(t.named) >= maxNamedTruncations {
		return false
	}
	if t.named == nil {
		t.named = map[[2]string]bool{}
	}
	// The strings are cloned because they point to a request's buffer, which is reused.
	t.named[[2]string{strings.Clone(name), strings.Clone(label)}] = true
	return true
}

// countTruncated counts a truncated value, and logs each label once. metric is "" for an attribute.
func (s *Store) countTruncated(name, label, metric string, limit int) {
	s.opts.Limiter.CountTruncated(name)
	if s.truncations.isNew(name, label) {
		s.opts.Logger.Warn(
			"a label value is too long and was truncated; to keep longer values, raise label_value_bytes in "+
				"--limits.file. Later values of this label are truncated without a log line", "tenant", name,
			"label", truncateName(label), "metric", truncateName(metric), "bytes", limit,
		)
	}
}

// truncateName truncates a name for the log.
func truncateName(s string) string { return s[:min(len(s), 128)] }
