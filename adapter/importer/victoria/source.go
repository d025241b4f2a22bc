package victoria

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/adapter/importer/lines"
)

// Native reads a file of the native format. It implements importer.Source.
type Native struct {
	// Path is the name of a file; "-" means Stdin.
	Path  string
	Stdin io.Reader
	importer.Selection
	hasStarted bool
}

// open opens the input and returns its size, 0 if unknown.
func (n *Native) open() (_ io.ReadCloser, size int64, err error) {
	if n.Path == "-" {
		if n.hasStarted {
			return nil, 0, errors.New("victoria: standard input can be read only once")
		}
		n.hasStarted = true
		return io.NopCloser(n.Stdin), 0, nil
	}
	f, err := os.Open(n.Path)
	if err != nil {
		return nil, 0, fmt.Errorf("victoria: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return f, size, nil
}

// reader returns a reader of the input after a position. If the input before the position has changed, isSame is false
// and the input is read from its start.
func (n *Native) reader(in io.Reader, after string) (r *nativeReader, isSame bool, err error) {
	var from nativeReader
	if after != "" {
		if from, err = parsePosition(after); err != nil {
			return nil, false, err
		}
	}
	rest, isSame, err := from.Continue(in)
	if err != nil {
		return nil, false, err
	}
	if after != "" && isSame {
		from.r = bufio.NewReaderSize(rest, 256<<10)
		return &from, true, nil
	}
	if r, err = newNativeReader(rest); err != nil {
		return nil, false, fmt.Errorf("victoria: %s: %w", n.Path, err)
	}
	return r, isSame, nil
}

// encodePosition encodes the position before the next record.
func (n *nativeReader) encodePosition() string {
	return fmt.Sprintf("%s %d %d", n.Prefix, n.minMS, n.maxMS)
}

func parsePosition(text string) (n nativeReader, err error) {
	var prefix string
	if _, err = fmt.Sscanf(text, "%s %d %d", &prefix, &n.minMS, &n.maxMS); err == nil {
		n.Prefix, err = importer.ParsePrefix(prefix)
	}
	if err != nil || n.Bytes < headerBytes {
		return nativeReader{}, fmt.Errorf("victoria: the checkpoint has an invalid position: %q", text)
	}
	return n, nil
}

// Plan implements importer.Source.
func (n *Native) Plan(context.Context) (importer.Plan, error) {
	p := importer.Plan{MinMS: 1, Words: "VictoriaMetrics' native format from standard input"}
	if n.Path == "-" {
		return p, nil
	}
	in, size, err := n.open()
	if err != nil {
		return p, err
	}
	r, _, err := n.reader(in, "")
	if err != nil {
		return p, errors.Join(err, in.Close())
	}
	p.MinMS, p.MaxMS = max(r.minMS, n.MinMS), min(r.maxMS, n.MaxMS)
	p.Words = fmt.Sprintf("VictoriaMetrics' native format in %s, %d bytes", n.Path, size)
	return p, in.Close()
}

// Batches implements importer.Source. A position is the start of a record.
func (n *Native) Batches(ctx context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		if err := n.batches(ctx, after, yield); err != nil && !errors.Is(err, errEnough) {
			yield(importer.Batch{}, err)
		}
	}
}

// errEnough means that the caller of Batches stopped.
var errEnough = errors.New("victoria: enough")

func (n *Native) batches(ctx context.Context, after string, yield func(importer.Batch, error) bool) (err error) {
	in, size, err := n.open()
	if err != nil {
		return err
	}
	if size == 0 {
		in = importer.Interruptible(ctx, in)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	r, isSame, err := n.reader(in, after)
	if err != nil {
		return err
	}
	g := importer.NewGatherer(n.Selection, 0)
	restarted := !isSame
	return readNative(ctx, r, g, func(bool) error {
		b := importer.Batch{Series: g.Take(importer.Tail{}), Position: r.encodePosition(), Restarted: restarted}
		restarted = false
		if size > 0 {
			b.Done = min(1, float64(r.Bytes)/float64(size))
		}
		if !yield(b, nil) {
			return errEnough
		}
		return nil
	})
}

// readNative reads all records. It calls take whenever there are enough samples for a batch. It calls take again, with
// end set, after the last record or before an unreadable record.
func readNative(ctx context.Context, r *nativeReader, g *importer.Gatherer, take func(end bool) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := r.Prefix
		err := r.next()
		if errors.Is(err, io.EOF) {
			return take(true)
		}
		if err == nil {
			err = r.gatherSamples(g)
		}
		if err != nil {
			r.Prefix = at
			if err := take(true); err != nil {
				return err
			}
			return fmt.Errorf("victoria: record at byte %d: %w", at.Bytes, err)
		}
		if g.Full() {
			if err := take(false); err != nil {
				return err
			}
		}
	}
}

// Options select the data to request from a server.
type Options struct {
	// Client sends the requests. Its URL is the server's base URL, or ends with /api/v1/export.
	Client fetch.Client
	// Native requests the native format, which costs the server less and has fewer bytes.
	Native bool
	importer.Selection
	// Width is the time range of a request. A day must be a multiple of it.
	Width time.Duration
	Now   func() time.Time
}

// exportPath is the path of exports on a server.
const exportPath = "/api/v1/export"

// New returns a source that reads from a server.
func New(o Options) *fetch.Days {
	u := *o.Client.URL
	if !strings.HasSuffix(u.Path, exportPath) {
		u.Path = strings.TrimSuffix(u.Path, "/") + exportPath
	}
	if o.Native {
		u.Path += "/native"
	}
	s := &server{Options: o, url: &u}
	return &fetch.Days{
		Words: "VictoriaMetrics at " + u.Redacted(), Selection: o.Selection, Width: o.Width, Now: o.Now,
		Wait: fetch.Sleep, Fetch: s.fetch,
	}
}

type server struct {
	Options
	url *url.URL
}

// fetch requests a piece, extended by one second on both sides. The Gatherer ignores samples outside of the piece.
func (s *server) fetch(
	ctx context.Context, minMS, maxMS int64, g *importer.Gatherer, take func(importer.Tail) error,
) error {
	q := url.Values{
		"start": {formatSeconds(minMS - 1000)}, "end": {formatSeconds(maxMS + 1000)}, "reduce_mem_usage": {"1"},
		"max_rows_per_line": {"10000"},
	}
	for _, ms := range s.Matchers {
		q.Add("match[]", formatSelector(ms))
	}
	if len(s.Matchers) == 0 {
		q.Add("match[]", `{__name__!=""}`)
	}
	answer, err := s.Client.Do(ctx, http.MethodPost, s.url, strings.NewReader(q.Encode()), http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "Accept-Encoding": {"gzip"},
	})
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // the body was only read
	var body io.Reader = retriedReader{answer.Body}
	if answer.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = retriedReader{z}
	}
	if !s.Native {
		return lines.Read(ctx, body, lines.JSONLines, g, take)
	}
	r, err := newNativeReader(body)
	if err != nil {
		return err
	}
	return readNative(ctx, r, g, func(end bool) error {
		if end { // the caller takes the rest once the response is complete
			return nil
		}
		return take(importer.Tail{})
	})
}

// retriedReader marks read errors as retryable.
type retriedReader struct{ r io.Reader }

func (s retriedReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	var busy *fetch.BusyError
	if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &busy) {
		err = fetch.MarkRetryable(err)
	}
	return n, err
}

// formatSeconds formats a time as VictoriaMetrics parses it.
func formatSeconds(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }

// formatSelector formats matchers as a selector.
func formatSelector(ms []*labels.Matcher) string {
	texts := make([]string, len(ms))
	for i, m := range ms {
		texts[i] = m.String()
	}
	return "{" + strings.Join(texts, ",") + "}"
}
