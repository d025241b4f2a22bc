package blocks

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/rollup"
)

// position is the end of a batch, with the source blocks read so far.
type position struct {
	// Day is the start of the day to resume, in milliseconds. Group and After are the external labels and the labels of
	// the day's last series in the batch. They are empty at the start of a day.
	Day   int64  `json:"day"`
	Group string `json:"group,omitempty"`
	// Resolution is the resolution of the group.
	Resolution rollup.Resolution `json:"resolution,omitempty"`
	After      map[string]string `json:"after,omitempty"`
	// Sources are the IDs of the original blocks of the samples read so far. Compaction doesn't change them.
	Sources []string `json:"sources"`
}

func (p position) String() string {
	text, _ := json.Marshal(p) // Invariant: a struct of texts and numbers can be marshalled.
	return string(text)
}

func (p position) labels() labels.Labels { return labels.FromMap(p.After) }

func parsePosition(text string) (p position, err error) {
	if text == "" {
		return position{Day: -1 << 62}, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("blocks: the checkpoint has an invalid position: %w", err)
	}
	return p, nil
}

// resume returns the position from which to resume: at, or an earlier position if there are new blocks before at.
func (s *Source) resume(at position) position {
	for _, b := range s.blocks {
		if b.meta.MinTime > at.Day+dayMS {
			continue
		}
		day := max(dayOf(s.minT), dayOf(max(b.meta.MinTime, s.minT)))
		if day > at.Day || day == at.Day && at.Group == "" && len(at.After) == 0 {
			continue
		}
		for _, source := range b.sources() {
			if _, ok := slices.BinarySearch(at.Sources, source); !ok {
				at = position{Day: day, Sources: at.Sources}
				break
			}
		}
	}
	return at
}

// sourcesUntil lists the sources of the blocks that start at or before a time.
func (s *Source) sourcesUntil(t int64) []string {
	var list []string
	for _, b := range s.blocks {
		if b.meta.MinTime <= t {
			list = append(list, b.sources()...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
