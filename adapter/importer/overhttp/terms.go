package overhttp

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
)

// Terms are the limits and versions that a server advertises to clients.
type Terms struct {
	// Version is the supported version of bodies.
	Version int `json:"version"`
	// MaxBytes is the maximum size of an uncompressed body, MaxWeight the maximum weight of its series, both in bytes.
	MaxBytes  int64 `json:"max_bytes"`
	MaxWeight int64 `json:"max_weight"`
	// RetentionMS is the retention of raw samples in milliseconds, for the tenant's series without a retention class. 0
	// means forever.
	RetentionMS int64 `json:"retention_ms"`
	// Retention5mMS is the retention of the 5m rollups of the same series, in milliseconds. 0 means forever.
	Retention5mMS int64 `json:"retention_5m_ms"`
	// Classes are the retention classes. The first one that matches a series applies.
	Classes []classTerms `json:"classes,omitempty"`
	// Store is the identity of the store, see storage.Store.Identity.
	Store string `json:"store"`
}

// classTerms is a retention class.
type classTerms struct {
	Name          string          `json:"name"`
	Match         [][]matchedText `json:"match"`
	RetentionMS   int64           `json:"retention_ms"`
	Retention5mMS int64           `json:"retention_5m_ms"`
}

// matchedText is a matcher of type =, !=, =~ or !~.
type matchedText struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// setRetentionPolicy sets the advertised retention.
func (t *Terms) setRetentionPolicy(k importer.RetentionPolicy) {
	t.RetentionMS, t.Retention5mMS = k.Default.Raw.Milliseconds(), k.Default.FiveMinutes.Milliseconds()
	for _, c := range k.Classes {
		class := classTerms{
			Name: c.Name, RetentionMS: c.Raw.Milliseconds(), Retention5mMS: c.FiveMinutes.Milliseconds(),
		}
		for _, ms := range c.Match {
			texts := make([]matchedText, len(ms))
			for i, m := range ms {
				texts[i] = matchedText{m.Name, m.Type.String(), m.Value}
			}
			class.Match = append(class.Match, texts)
		}
		t.Classes = append(t.Classes, class)
	}
}

// retentionHeader is a request header. Its value is the Terms.retentionText of the retention that the client used to
// select samples.
const retentionHeader = "X-Cassia-Retention"

// retentionText returns a hash of the retention.
func (t *Terms) retentionText() string {
	text, err := json.Marshal(Terms{RetentionMS: t.RetentionMS, Retention5mMS: t.Retention5mMS, Classes: t.Classes})
	if err != nil {
		return err.Error() // Strings and numbers can always be marshaled.
	}
	return strconv.FormatUint(xxhash.Sum64(text), 16)
}

// RetentionPolicy returns the advertised retention, which doesn't include the retention of 1h rollups.
func (t *Terms) RetentionPolicy() (k importer.RetentionPolicy, err error) {
	k.Default = keepOf(t.RetentionMS, t.Retention5mMS)
	for _, c := range t.Classes {
		class := retention.Class{Name: c.Name, Durations: keepOf(c.RetentionMS, c.Retention5mMS)}
		for _, texts := range c.Match {
			ms := make([]*labels.Matcher, len(texts))
			for i, m := range texts {
				if ms[i], err = m.matcher(); err != nil {
					return k, fmt.Errorf("%w: its retention class %q: %w", errUnsupported, c.Name, err)
				}
			}
			class.Match = append(class.Match, ms)
		}
		k.Classes = append(k.Classes, class)
	}
	return k, nil
}

func (m matchedText) matcher() (*labels.Matcher, error) {
	for _, t := range []labels.MatchType{
		labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp,
	} {
		if t.String() == m.Type {
			return labels.NewMatcher(t, m.Name, m.Value)
		}
	}
	return nil, fmt.Errorf("unknown matcher type %q", m.Type)
}

func keepOf(rawMS, fiveMinutesMS int64) retention.Durations {
	return retention.Durations{
		Raw: time.Duration(rawMS) * time.Millisecond, FiveMinutes: time.Duration(fiveMinutesMS) * time.Millisecond,
	}
}

// importResponse is the response to an import.
type importResponse struct {
	Stats    storage.ImportStats `json:"stats"` // without refusals
	Refusals []rejectedSeries    `json:"refusals"`
}

type rejectedSeries struct {
	Labels  labels.Labels `json:"labels"`
	Samples int           `json:"samples"`
	Error   string        `json:"error"`
}

// serverError is an error text from a server.
type serverError string

func (s serverError) Error() string { return string(s) }

func importResponseOf(stats storage.ImportStats) importResponse {
	s := importResponse{Stats: stats}
	s.Stats.Refusals = nil
	for _, r := range stats.Refusals {
		s.Refusals = append(s.Refusals, rejectedSeries{r.Labels, r.Samples, r.Err.Error()})
	}
	return s
}

func (i importResponse) stats() storage.ImportStats {
	stats := i.Stats
	for _, r := range i.Refusals {
		stats.Refusals = append(stats.Refusals, storage.Refusal{
			Labels: r.Labels, Samples: r.Samples, Err: serverError(r.Error),
		})
	}
	return stats
}

// maxDifferences is the maximum number of differences in a response. Its stats count all differences.
const maxDifferences = 100

// compareResponse is the response to a comparison.
type compareResponse struct {
	Stats       importer.VerifyStats `json:"stats"`
	Differences []difference         `json:"differences"`
}

// difference is an importer.Difference in JSON, which has no numbers for NaN and infinite sums.
type difference struct {
	Labels      labels.Labels `json:"labels"`
	DayMS       int64         `json:"day_ms"`
	SourceCount int           `json:"source_count"`
	SourceSum   jsonFloat     `json:"source_sum"`
	StoredCount int           `json:"stored_count"`
	StoredSum   jsonFloat     `json:"stored_sum"`
	Rollups     bool          `json:"rollups"`
}

func differenceOf(d importer.Difference) difference {
	return difference{
		d.Labels, d.DayMS, d.Source.Count, jsonFloat(d.Source.Sum), d.Stored.Count, jsonFloat(d.Stored.Sum), d.Rollups,
	}
}

func (d difference) difference() importer.Difference {
	return importer.Difference{
		Labels: d.Labels, DayMS: d.DayMS, Rollups: d.Rollups,
		Source: importer.Figures{Count: d.SourceCount, Sum: float64(d.SourceSum)},
		Stored: importer.Figures{Count: d.StoredCount, Sum: float64(d.StoredSum)},
	}
}

// jsonFloat is a float that is encoded as a JSON string.
type jsonFloat float64

// MarshalText implements encoding.TextMarshaler.
func (j jsonFloat) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(j), 'g', -1, 64), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (j *jsonFloat) UnmarshalText(text []byte) error {
	x, err := strconv.ParseFloat(string(text), 64)
	*j = jsonFloat(x)
	return err
}

// The parameters of a comparison's URL: the start and end of its time range in milliseconds, both included. Without
// them, the range is all times.
const (
	startParameter = "start"
	endParameter   = "end"
)

// spanQuery returns the URL parameters of a time range.
func spanQuery(s query.Span) url.Values {
	q := url.Values{}
	if all := importer.AllTimes(); s != all {
		q.Set(startParameter, strconv.FormatInt(s.MinT, 10))
		q.Set(endParameter, strconv.FormatInt(s.MaxT, 10))
	}
	return q
}

// spanOf parses the URL parameters of a time range.
func spanOf(q url.Values) (query.Span, error) {
	s := importer.AllTimes()
	for _, p := range []struct {
		name string
		into *int64
	}{{startParameter, &s.MinT}, {endParameter, &s.MaxT}} {
		if text := q.Get(p.name); text != "" {
			t, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return s, fmt.Errorf("%w: the parameter %s must be a time in milliseconds", errMalformed, p.name)
			}
			*p.into = t
		}
	}
	return s, nil
}
