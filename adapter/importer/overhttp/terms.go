package overhttp

import (
	"strconv"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
)

// Terms are a server's limits and versions, as it answers them to clients.
type Terms struct {
	// Version is that of the bodies that it reads.
	Version int `json:"version"`
	// MaxBytes bounds a body, decompressed, and MaxWeight what its series weigh; both in bytes.
	MaxBytes  int64 `json:"max_bytes"`
	MaxWeight int64 `json:"max_weight"`
	// RetentionMS is how long it keeps the tenant's raw samples if they are of no retention class, milliseconds; 0: for ever.
	RetentionMS int64 `json:"retention_ms"`
	// Store is the identity of its store, see storage.Store.Identity.
	Store string `json:"store"`
}

// stored is the answer to an import.
type stored struct {
	Stats    storage.ImportStats `json:"stats"` // but for the refusals
	Refusals []refusal           `json:"refusals"`
}

type refusal struct {
	Labels  labels.Labels `json:"labels"`
	Samples int           `json:"samples"`
	Error   string        `json:"error"`
}

// serverError is a server's error.
type serverError string

func (s serverError) Error() string { return string(s) }

func storedOf(stats storage.ImportStats) stored {
	s := stored{Stats: stats}
	s.Stats.Refusals = nil
	for _, r := range stats.Refusals {
		s.Refusals = append(s.Refusals, refusal{r.Labels, r.Samples, r.Err.Error()})
	}
	return s
}

func (s stored) stats() storage.ImportStats {
	stats := s.Stats
	for _, r := range s.Refusals {
		stats.Refusals = append(stats.Refusals, storage.Refusal{Labels: r.Labels, Samples: r.Samples, Err: serverError(r.Error)})
	}
	return stats
}

// maxDifferences bounds how many differences an answer has; its stats count all.
const maxDifferences = 100

// compared is the answer to a comparison.
type compared struct {
	Stats       importer.VerifyStats `json:"stats"`
	Differences []difference         `json:"differences"`
}

// difference is an importer.Difference; JSON has no words for sums that are no numbers.
type difference struct {
	Labels      labels.Labels `json:"labels"`
	DayMS       int64         `json:"day_ms"`
	SourceCount int           `json:"source_count"`
	SourceSum   number        `json:"source_sum"`
	StoredCount int           `json:"stored_count"`
	StoredSum   number        `json:"stored_sum"`
	Rollups     bool          `json:"rollups"`
}

func differenceOf(d importer.Difference) difference {
	return difference{d.Labels, d.DayMS, d.Source.Count, number(d.Source.Sum), d.Stored.Count, number(d.Stored.Sum), d.Rollups}
}

func (d difference) difference() importer.Difference {
	return importer.Difference{
		Labels: d.Labels, DayMS: d.DayMS, Rollups: d.Rollups,
		Source: importer.Figures{Count: d.SourceCount, Sum: float64(d.SourceSum)},
		Stored: importer.Figures{Count: d.StoredCount, Sum: float64(d.StoredSum)},
	}
}

// number is a float that stands in JSON as text.
type number float64

// MarshalText implements encoding.TextMarshaler.
func (n number) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *number) UnmarshalText(text []byte) error {
	x, err := strconv.ParseFloat(string(text), 64)
	*n = number(x)
	return err
}
