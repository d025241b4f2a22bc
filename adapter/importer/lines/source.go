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
	// BatchBytes is the size of a batch. 0 means importer.BatchBytes.
	BatchBytes int
}

// Format is a format of lines.
type Format struct {
	name string
	new  func(g *importer.Gatherer) parser
}

// String names the format.
func (f Format) String() string { return f.name }

// linePosition is the position at which a line starts.
type linePosition struct {
	// Prefix is the part of the input before the line.
	importer.Prefix
	number int // number of lines before it
	// context is the state of a parser at this position.
	context string
}

// parser parses the lines of a format and passes the samples to a Gatherer.
type parser interface {
	// parseLine parses the next line, without its newline. from is the start of the line, without context. cut is set
	// if the line is the end of the input and has no newline. parseLine must not pass samples of an invalid line to the
	// Gatherer.
	parseLine(text []byte, from linePosition, cut bool) error
	// parseDeferred parses the deferred lines, up to the first invalid one. Its error is a lineError.
	parseDeferred() error
	// checkEnd returns an error if the input is incomplete.
	checkEnd() error
	// resumePosition is called after all lines have been read. It returns the position at which the next run continues.
	// end is the end of the input; its context isn't set.
	resumePosition(end linePosition) linePosition
	// context returns the state of the parser; setContext restores it.
	context() string
	setContext(context string)
	// lastRun returns the samples of the latest consecutive lines with the same series, and the position of the first
	// of these lines.
	lastRun() (importer.Tail, linePosition)
}

// Source reads lines. It implements importer.Source.
type Source struct {
	o          Options
	hasStarted bool
}

// New returns a source.
func New(o Options) *Source { return &Source{o: o} }

// open opens the input and returns its size, 0 if unknown.
func (s *Source) open() (r io.ReadCloser, size int64, err error) {
	if s.o.Path == "-" {
		if s.hasStarted {
			return nil, 0, errors.New("lines: standard input can be read only once")
		}
		s.hasStarted = true
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
		from = linePosition{}
	}
	restarted := !isSame
	g := importer.NewGatherer(s.o.Selection, s.o.BatchBytes)
	return read(ctx, in, s.o.Format, g, from, func(at linePosition, staying importer.Tail, _ bool) error {
		b := importer.Batch{Series: g.Take(staying), Position: encodePosition(at), Restarted: restarted}
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

// Read passes all samples of an input to a Gatherer. Whenever the Gatherer has enough samples for a batch, Read calls
// take with the tail that must stay in the Gatherer. When Read returns, the caller must take the remaining samples.
func Read(ctx context.Context, in io.Reader, f Format, g *importer.Gatherer, take func(importer.Tail) error) error {
	return read(ctx, in, f, g, linePosition{}, func(_ linePosition, t importer.Tail, end bool) error {
		if end {
			return nil
		}
		return take(t)
	})
}

func read(
	ctx context.Context, in io.Reader, f Format, g *importer.Gatherer, from linePosition,
	take func(at linePosition, t importer.Tail, end bool) error,
) error {
	r, p := newReader(in, from), f.new(g)
	p.setContext(from.context)
	for {
		if r.number%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		begin := r.linePosition
		line, cut, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = p.parseLine(line, begin, cut)
		}
		if err == nil && g.Full() {
			err = p.parseDeferred()
		}
		if err != nil {
			begin.context = p.context()
			return stopBefore(p, begin, err, take)
		}
		if !g.Full() {
			continue
		}
		staying, at := p.lastRun()
		if staying.Of == nil || !g.Small(staying.Of.Len()-staying.From) {
			staying, at = importer.Tail{}, linePosition{r.Prefix, r.number, p.context()}
		}
		if err := take(at, staying, false); err != nil {
			return err
		}
	}
	if err := p.parseDeferred(); err != nil {
		return stopBefore(p, r.linePosition, err, take)
	}
	if err := take(p.resumePosition(r.linePosition), importer.Tail{}, true); err != nil {
		return err
	}
	if err := p.checkEnd(); err != nil {
		return newLineError(r.number, err)
	}
	return nil
}

// stopBefore takes the samples before an invalid line, so that the next run starts with this line. The invalid line is
// the first invalid one of the deferred lines. If all of them are valid, it is the line at begin.
func stopBefore(
	p parser, begin linePosition, err error, take func(at linePosition, t importer.Tail, end bool) error,
) error {
	var earlier *lineError
	if !errors.As(err, &earlier) { // deferred lines precede this line
		if restErr := p.parseDeferred(); !errors.As(restErr, &earlier) {
			earlier = &lineError{begin, err}
		}
	}
	if err := take(earlier.at, importer.Tail{}, true); err != nil {
		return err
	}
	return newLineError(earlier.at.number+1, earlier)
}

// encodePosition encodes the position for a checkpoint.
func encodePosition(p linePosition) string {
	return fmt.Sprintf("%s %d %s", p.Prefix, p.number, strconv.Quote(p.context))
}

func parsePosition(text string) (p linePosition, err error) {
	if text == "" {
		return p, nil
	}
	var prefix string
	if _, err = fmt.Sscanf(text, "%s %d %q", &prefix, &p.number, &p.context); err == nil {
		p.Prefix, err = importer.ParsePrefix(prefix)
	}
	if err != nil || p.number < 0 {
		return linePosition{}, fmt.Errorf("lines: the checkpoint has an invalid position: %q", text)
	}
	return p, nil
}
