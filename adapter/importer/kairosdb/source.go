package kairosdb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
)

const (
	dayMS = 24 * 60 * 60 * 1000
	// sliceMS is the width of a slice in milliseconds: a third of a row in KairosDB, and a window of Cassia's 5m
	// rollups. All metrics of a slice are read before the next slice.
	sliceMS = 7 * dayMS
	// maxTimeMS is above all timestamps that Cassia stores, in milliseconds, and small enough that sums don't overflow.
	maxTimeMS = 1 << 60
	// lateMS is the max delay of points in KairosDB. A resumed import reads a slice again if the slice had ended less
	// than lateMS before it was read.
	lateMS = 7 * dayMS
	// seriesBytes is the estimated size of a series in a batch, in addition to its samples.
	seriesBytes = 512
	// DefaultReaders is the default of Options.Readers.
	DefaultReaders = 4
)

// errPosition means that the position of a checkpoint isn't valid for this source.
var errPosition = errors.New("kairosdb: the checkpoint has an invalid position")

// Options configure a Source.
type Options struct {
	Keyspace Keyspace
	// WidthMS is the width of rows in milliseconds.
	WidthMS int64
	Mapping *Mapping
	// Select selects series by their mapped labels. The labels that it adds are added after the selection.
	Select importer.Selection
	// Readers is the number of series that are read concurrently; each takes up to 16 MiB. Default DefaultReaders.
	Readers int
	// BatchBytes is the approximate size of a batch. Default importer.BatchBytes.
	BatchBytes int
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Source is a KairosDB keyspace. It implements importer.Source.
type Source struct {
	o    Options
	plan *plan
	// pieceSamples bounds the samples of a series that are read at once.
	pieceSamples int
}

var _ importer.Source = (*Source)(nil)

// New returns the source.
func New(o Options) *Source {
	if o.Readers < 1 {
		o.Readers = DefaultReaders
	}
	if o.BatchBytes < 1 {
		o.BatchBytes = importer.BatchBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Select.MinMS, o.Select.MaxMS = max(o.Select.MinMS, -maxTimeMS), min(o.Select.MaxMS, maxTimeMS)
	return &Source{o: o, pieceSamples: pieceSamples}
}

// Name identifies the source of a checkpoint, in addition to the keyspace's address: it is a digest of the mapping.
func (s *Source) Name() string { return "mapping " + s.o.Mapping.digest }

// position identifies the last series that was stored.
type position struct {
	// EndMS is the end of the slice that contains the series.
	EndMS  int64             `json:"slice_end_ms"`
	Metric string            `json:"metric"`
	Tags   map[string]string `json:"tags"`
	// UntilMS is the end of the stored part, if that is before the end of the slice. Step is then the index in stepsMS
	// of the part width for the rest.
	UntilMS *int64 `json:"until_ms,omitempty"`
	Step    int    `json:"step,omitempty"`
	// ReadMS is the time when the series was read.
	ReadMS int64 `json:"read_ms"`
}

func parsePosition(text string) (*position, error) {
	if text == "" {
		return nil, nil
	}
	p := &position{}
	if err := json.Unmarshal([]byte(text), p); err != nil || p.EndMS%sliceMS != 0 || p.Step < 0 ||
		p.Step >= len(stepsMS) {
		return nil, fmt.Errorf("%w: %q", errPosition, text)
	}
	// Slices that ended less than lateMS before they were read may have received points since. All of them are read
	// again.
	if settled := p.ReadMS - lateMS; p.EndMS > settled {
		return &position{EndMS: settled}, nil
	}
	return p, nil
}

func (p *position) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // contains only numbers and strings
	}
	return string(text)
}

// Batches implements importer.Source.
func (s *Source) Batches(ctx context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		at, err := parsePosition(after)
		if err == nil {
			err = s.ensurePlan(ctx)
		}
		if err != nil {
			yield(importer.Batch{}, err)
			return
		}
		b := &batcher{yield: yield, most: s.o.BatchBytes, now: s.o.Now}
		if err := s.batches(ctx, at, b); err != nil {
			yield(importer.Batch{}, err)
		}
	}
}

// errEnough means that the caller of Batches stopped.
var errEnough = errors.New("kairosdb: enough batches")

// batches reads all slices from a position on.
func (s *Source) batches(ctx context.Context, at *position, b *batcher) error {
	for piece := range s.pieces(ctx, at) {
		if piece.err != nil {
			return piece.err
		}
		if err := b.add(piece); errors.Is(err, errEnough) {
			return nil
		}
	}
	if err := b.flush(); errors.Is(err, errEnough) {
		return nil
	}
	return ctx.Err()
}

// batcher collects pieces into batches.
type batcher struct {
	yield func(importer.Batch, error) bool
	batch importer.Batch
	skips skips
	bytes int
	most  int
	now   func() time.Time
}

func (b *batcher) add(p piece) error {
	if p.samples != nil && p.samples.Len() > 0 {
		b.batch.Series = append(b.batch.Series, storage.ImportedSeries{Labels: p.job.labels, Samples: p.samples})
		b.bytes += seriesBytes + p.samples.Len()*importer.SampleBytes
	}
	b.skips.addAll(&p.skips)
	at := position{EndMS: p.job.endMS, Metric: p.job.metric.name, Tags: p.job.tags, ReadMS: b.now().UnixMilli()}
	if p.untilMS < p.job.endMS {
		at.UntilMS, at.Step = &p.untilMS, p.step
	}
	b.batch.Position, b.batch.Done = at.String(), p.job.done
	if b.bytes < b.most {
		return nil
	}
	return b.flush()
}

func (b *batcher) flush() error {
	b.batch.Skipped = b.skips.list
	if len(b.batch.Series) == 0 && len(b.batch.Skipped) == 0 {
		return nil
	}
	more := b.yield(b.batch, nil)
	b.batch, b.skips, b.bytes = importer.Batch{}, skips{}, 0
	if !more {
		return errEnough
	}
	return nil
}

// skips counts skipped rows by reason.
type skips struct {
	list []importer.Skip
	at   map[[2]string]int
}

// maxSkips bounds a list of skips. Further skips are summed by reason.
const maxSkips = 1000

func (s *skips) add(what, why string, samples int) {
	if len(s.list) >= maxSkips {
		what = "more"
	}
	key := [2]string{what, why}
	i, ok := s.at[key]
	if !ok {
		if s.at == nil {
			s.at = map[[2]string]int{}
		}
		i = len(s.list)
		s.at[key] = i
		s.list = append(s.list, importer.Skip{What: what, Why: why})
	}
	s.list[i].Samples += samples
}

func (s *skips) addAll(other *skips) {
	for _, o := range other.list {
		s.add(o.What, o.Why, o.Samples)
	}
}

// seriesText returns a series of KairosDB for messages.
func seriesText(metric string, tags map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s{", metric)
	for i, name := range slices.Sorted(maps.Keys(tags)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%q", name, tags[name])
	}
	b.WriteByte('}')
	return b.String()
}

// compareTags orders the series of a metric by the names of their tags, then by the values of the tags.
func compareTags(a, b map[string]string) int {
	x, y := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))
	if c := slices.Compare(x, y); c != 0 {
		return c
	}
	for _, name := range x {
		if c := cmp.Compare(a[name], b[name]); c != 0 {
			return c
		}
	}
	return 0
}
