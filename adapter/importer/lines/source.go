package lines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"

	"github.com/cassia-db/cassia/adapter/importer"
)

// Options select what to read. Format must be set.
type Options struct {
	// Path is the name of a file; "-" means Stdin.
	Path   string
	Stdin  io.Reader
	Format Format
	importer.Selection
	// BatchBytes is the size of a batch; 0: importer.BatchBytes.
	BatchBytes int
}

// Format is a format of lines.
type Format struct {
	name string
	new  func(g *importer.Gatherer) parser
}

// String names the format.
func (f Format) String() string { return f.name }

// place is the position at which a line starts.
type place struct {
	// Prefix is the part of the input before the line.
	importer.Prefix
	number int // number of lines before it
	// context is the state of a parser at this position.
	context string
}

// parser parses the lines of a format and passes the samples to a Gatherer.
type parser interface {
	// line parses the next line, without its newline. from is the start of the line, without context. cut is set if the
	// line is the end of the input and has no newline. line must not pass samples of an invalid line to the Gatherer.
	line(text []byte, from place, cut bool) error
	// rest parses the deferred lines, up to the first invalid one. Its error is a lineError.
	rest() error
	// end returns an error if the input is incomplete.
	end() error
	// resumeAt returns the position at which the next run starts once all lines are read. end is the end of the input,
	// without context.
	resumeAt(end place) place
	// context returns the state of the parser; resume restores it.
	context() string
	resume(context string)
	// last returns the samples of the latest consecutive lines with the same series, and the position of the first of
	// these lines.
	last() (importer.Tail, place)
}

// Source reads lines. It implements importer.Source.
type Source struct {
	o       Options
	started bool
}

// New returns a source.
func New(o Options) *Source { return &Source{o: o} }

// open opens the input and returns its size, 0 if unknown.
func (s *Source) open() (r io.ReadCloser, size int64, err error) {
	if s.o.Path == "-" {
		if s.started {
			return nil, 0, errors.New("lines: standard input can be read only once")
		}
		s.started = true
		return io.NopCloser(s.o.Stdin), 0, nil
	}
	f, err := os.Open(s.o.Path)
	if err != nil {
		return nil, 0, fmt.Errorf("lines: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("lines: %s is a folder; import the files one after the other", s.o.Path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	if info.Mode().IsRegular() {
		size = info.Size()
	}
	return f, size, nil
}

// Plan implements importer.Source. It doesn't read the lines.
func (s *Source) Plan(context.Context) (importer.Plan, error) {
	p := importer.Plan{MinMS: 1, Words: s.o.Format.name + " from standard input"}
	if s.o.Path == "-" {
		return p, nil
	}
	r, size, err := s.open()
	if err != nil {
		return p, err
	}
	p.Words = fmt.Sprintf("%s in %s, %d bytes", s.o.Format, s.o.Path, size)
	return p, r.Close()
}

// Batches implements importer.Source.
func (s *Source) Batches(ctx context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		if err := s.batches(ctx, after, yield); err != nil && !errors.Is(err, errEnough) {
			yield(importer.Batch{}, err)
		}
	}
}

// errEnough means that the caller of Batches stopped.
var errEnough = errors.New("lines: enough")

func (s *Source) batches(ctx context.Context, after string, yield func(importer.Batch, error) bool) (err error) {
	from, err := parsePosition(after)
	if err != nil {
		return err
	}
	file, size, err := s.open()
	if err != nil {
		return err
	}
	if size == 0 {
		file = importer.Interruptible(ctx, file)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	in, isSame, err := from.Continue(file)
	if err != nil {
		return err
	}
	if !isSame {
		from = place{}
	}
	restarted := !isSame
	g := importer.NewGatherer(s.o.Selection, s.o.BatchBytes)
	return read(ctx, in, s.o.Format, g, from, func(at place, staying importer.Tail, _ bool) error {
		b := importer.Batch{Series: g.Take(staying), Position: position(at), Restarted: restarted}
		restarted = false
		if size > 0 {
			b.Done = min(1, float64(at.Bytes)/float64(size))
		}
		if !yield(b, nil) {
			return errEnough
		}
		return nil
	})
}

// Read passes all samples of an input to a Gatherer. It calls take once there are enough samples for a batch, with the
// tail that must stay in the Gatherer. When Read returns, the caller must take the remaining samples.
func Read(ctx context.Context, in io.Reader, f Format, g *importer.Gatherer, take func(importer.Tail) error) error {
	return read(ctx, in, f, g, place{}, func(_ place, t importer.Tail, end bool) error {
		if end {
			return nil
		}
		return take(t)
	})
}

func read(
	ctx context.Context, in io.Reader, f Format, g *importer.Gatherer, from place,
	take func(at place, t importer.Tail, end bool) error,
) error {
	r, p := newReader(in, from), f.new(g)
	p.resume(from.context)
	for {
		if r.number%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		begin := r.place
		line, cut, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = p.line(line, begin, cut)
		}
		if err == nil && g.Full() {
			err = p.rest()
		}
		if err != nil {
			begin.context = p.context()
			return stopAt(p, begin, err, take)
		}
		if !g.Full() {
			continue
		}
		staying, at := p.last()
		if staying.Of == nil || !g.Small(staying.Of.Len()-staying.From) {
			staying, at = importer.Tail{}, place{r.Prefix, r.number, p.context()}
		}
		if err := take(at, staying, false); err != nil {
			return err
		}
	}
	if err := p.rest(); err != nil {
		return stopAt(p, r.place, err, take)
	}
	if err := take(p.resumeAt(r.place), importer.Tail{}, true); err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return wrongLine(r.number, err)
	}
	return nil
}

// stopAt takes the samples before an invalid line, so that the next run starts with this line. The invalid line is the
// first of the deferred lines that is invalid, otherwise the line at begin.
func stopAt(p parser, begin place, err error, take func(at place, t importer.Tail, end bool) error) error {
	var earlier *lineError
	if !errors.As(err, &earlier) { // deferred lines precede this line
		if restErr := p.rest(); !errors.As(restErr, &earlier) {
			earlier = &lineError{begin, err}
		}
	}
	if err := take(earlier.at, importer.Tail{}, true); err != nil {
		return err
	}
	return wrongLine(earlier.at.number+1, earlier)
}

// position encodes the position for a checkpoint.
func position(p place) string {
	return fmt.Sprintf("%s %d %s", p.Prefix, p.number, strconv.Quote(p.context))
}

func parsePosition(text string) (p place, err error) {
	if text == "" {
		return p, nil
	}
	var prefix string
	if _, err = fmt.Sscanf(text, "%s %d %q", &prefix, &p.number, &p.context); err == nil {
		p.Prefix, err = importer.ParsePrefix(prefix)
	}
	if err != nil || p.number < 0 {
		return place{}, fmt.Errorf("lines: the checkpoint has an invalid position: %q", text)
	}
	return p, nil
}
