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
	// sliceMS is how much time is read of all metrics before the next: a third of a row as KairosDB keeps them, and a
	// window of Cassia's 5m rollups.
	sliceMS = 7 * dayMS
	// farMS is beyond all times that Cassia stores, milliseconds, so that sums don't overflow.
	farMS = 1 << 60
	// lateMS is how late points may come to KairosDB: a slice that ended less than that before it was read is read again
	// when an import goes on.
	lateMS = 7 * dayMS
	// seriesBytes is what a series takes in a batch besides its samples.
	seriesBytes = 512
	// DefaultReaders is how many series are read at once.
	DefaultReaders = 4
)

// ErrPosition means that a checkpoint's position is none of this source's.
var ErrPosition = errors.New("kairosdb: the checkpoint has an invalid position")

// Options configure a Source.
type Options struct {
	Keyspace Keyspace
	// WidthMS is how wide rows are, milliseconds.
	WidthMS int64
	Mapping *Mapping
	// Select chooses series by the labels that they get, without those that it adds.
	Select importer.Selection
	// Readers is how many series are read at once; each takes up to 16 MiB. Default DefaultReaders.
	Readers int
	// BatchBytes is about how much a batch holds. Default importer.BatchBytes.
	BatchBytes int
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Source is a keyspace of KairosDB's. It is an importer.Source.
type Source struct {
	o    Options
	plan *plan
	// pieceSamples bounds how many samples of a series are read at once.
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
	o.Select.MinMS, o.Select.MaxMS = max(o.Select.MinMS, -farMS), min(o.Select.MaxMS, farMS)
	return &Source{o: o, pieceSamples: pieceSamples}
}

// Name identifies the source of a checkpoint, besides the keyspace's place: the mapping, by its content.
func (s *Source) Name() string { return "mapping " + s.o.Mapping.digest }

// position is the last series that is stored.
type position struct {
	// EndMS is the end of its slice.
	EndMS  int64             `json:"slice_end_ms"`
	Metric string            `json:"metric"`
	Tags   map[string]string `json:"tags"`
	// UntilMS is up to where it is stored, if that isn't the slice's end, and Step what comes next is cut into.
	UntilMS *int64 `json:"until_ms,omitempty"`
	Step    int    `json:"step,omitempty"`
	// ReadMS is when it was read.
	ReadMS int64 `json:"read_ms"`
}

func parsePosition(text string) (*position, error) {
	if text == "" {
		return nil, nil
	}
	p := &position{}
	if err := json.Unmarshal([]byte(text), p); err != nil || p.EndMS%sliceMS != 0 || p.Step < 0 || p.Step >= len(stepsMS) {
		return nil, fmt.Errorf("%w: %q", ErrPosition, text)
	}
	// Rows that were read before they were a week old may have got more points since: all of them are read once more.
	if settled := p.ReadMS - lateMS; p.EndMS > settled {
		return &position{EndMS: settled}, nil
	}
	return p, nil
}

func (p *position) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // it holds numbers and texts
	}
	return string(text)
}

// Batches implements importer.Source.
func (s *Source) Batches(ctx context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		at, err := parsePosition(after)
		if err == nil {
			err = s.needPlan(ctx)
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

// errEnough means that the receiver of batches wants no more.
var errEnough = errors.New("kairosdb: no more batches are wanted")

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

// batcher puts pieces together to batches.
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

// skips adds up rows that are left out.
type skips struct {
	list []importer.Skip
	at   map[[2]string]int
}

// maxSkips bounds a list of skips; what comes after them is added up.
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

// seriesText names a series of KairosDB's for people.
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

// compareTags orders series of a metric: by the names of their tags, then by the values.
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
