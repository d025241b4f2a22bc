package fetch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/cassia-db/cassia/adapter/importer"
)

// Days is a source that requests one day after the other from a server. It implements importer.Source.
type Days struct {
	// Words describes the request in messages.
	Words string
	importer.Selection
	// Width is the time range of one request. A day must be a multiple of it.
	Width time.Duration
	// BatchBytes is the size of a batch. 0 means importer.BatchBytes.
	BatchBytes int
	// Now is the clock. A Selection without an end ends now.
	Now func() time.Time
	// Wait waits for d before a retry, or until ctx is canceled.
	Wait func(ctx context.Context, d time.Duration) error
	// Fetch passes the server's samples in [MinMS, MaxMS] to a Gatherer, which ignores samples outside of this range.
	// Whenever the Gatherer has enough samples for a batch, Fetch calls take with the tail that must stay in the
	// Gatherer.
	Fetch func(ctx context.Context, minMS, maxMS int64, g *importer.Gatherer, take func(importer.Tail) error) error
}

// ErrNoStart means that the start of the history is unknown.
var ErrNoStart = errors.New("fetch: --start is missing; a server doesn't report the time of its oldest sample")

// maxTries bounds the attempts of a request; with the waits in between they take about five minutes.
const maxTries = 12

// Sleep waits using the machine's clock.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bounds returns the first and last selected time.
func (d *Days) bounds() (minMS, maxMS int64, err error) {
	if d.MinMS < -1<<50 {
		return 0, 0, ErrNoStart
	}
	maxMS = min(d.MaxMS, d.Now().UnixMilli())
	if d.MinMS > maxMS {
		return 0, 0, errors.New("fetch: --start is in the future or after --end")
	}
	return d.MinMS, maxMS, nil
}

// Plan implements importer.Source.
func (d *Days) Plan(context.Context) (importer.Plan, error) {
	minMS, maxMS, err := d.bounds()
	return importer.Plan{MinMS: minMS, MaxMS: maxMS, Words: d.Words}, err
}

// Batches implements importer.Source.
func (d *Days) Batches(ctx context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		if err := d.batches(ctx, after, yield); err != nil && !errors.Is(err, errEnough) {
			yield(importer.Batch{}, err)
		}
	}
}

// errEnough means that the caller of Batches stopped.
var errEnough = errors.New("fetch: enough")

func (d *Days) batches(ctx context.Context, after string, yield func(importer.Batch, error) bool) error {
	minMS, maxMS, err := d.bounds()
	if err != nil {
		return err
	}
	from := minMS
	if after != "" {
		done, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return fmt.Errorf("fetch: the checkpoint has an invalid position: %q", after)
		}
		from = max(from, done+1)
		// If the last piece was read before its end, the server may have received samples of it since. It is read
		// again.
		if end := pieceEnd(done, d.Width.Milliseconds()); done != end && from <= maxMS {
			from = max(minMS, end-d.Width.Milliseconds()+1)
		}
	}
	for from <= maxMS {
		to := min(pieceEnd(from, d.Width.Milliseconds()), maxMS)
		p := &piece{
			Days: d, from: from, to: to, yield: yield,
			done: func(t int64) float64 { return float64(t-minMS) / float64(maxMS-minMS+1) },
		}
		if err := p.read(ctx); err != nil {
			return err
		}
		from = to + 1
	}
	return nil
}

// pieceEnd returns the last millisecond of the piece that contains t. Like slots, pieces end at multiples of their
// width.
func pieceEnd(t, width int64) int64 {
	q := (t - 1) / width
	if (t-1)%width < 0 {
		q--
	}
	return (q + 1) * width
}

// piece is the time range of one request.
type piece struct {
	*Days
	from, to   int64
	yield      func(importer.Batch, error) bool
	done       func(int64) float64
	g          *importer.Gatherer
	hasYielded bool
}

// read sends the request and retries it while the server is busy, up to maxTries times. Once a part of the piece has
// been yielded, it doesn't retry.
func (p *piece) read(ctx context.Context) error {
	for try := 1; ; try++ {
		sel := p.Selection
		sel.MinMS, sel.MaxMS = p.from, p.to
		p.g = importer.NewGatherer(sel, p.BatchBytes)
		err := p.Fetch(ctx, p.from, p.to, p.g, p.yieldPart)
		if err == nil {
			return p.yieldLast()
		}
		var busy *BusyError
		switch {
		case errors.Is(err, errEnough):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &busy), p.hasYielded, try == maxTries:
			return fmt.Errorf("fetch: %s: %w", p.describe(), err)
		}
		if err := p.Wait(ctx, busy.Wait(try)); err != nil {
			return err
		}
	}
}

func (p *piece) describe() string {
	return fmt.Sprintf("from %s to %s", formatInstant(p.from), formatInstant(p.to))
}

func formatInstant(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}

// yieldPart yields a part of a piece. Its position is the end of the previous piece, because a run can resume only with
// a whole piece.
func (p *piece) yieldPart(staying importer.Tail) error {
	p.hasYielded = true
	if !p.yield(
		importer.Batch{Series: p.g.Take(staying), Position: strconv.FormatInt(p.from-1, 10), Done: p.done(p.from)}, nil,
	) {
		return errEnough
	}
	return nil
}

// yieldLast yields the last part of a piece.
func (p *piece) yieldLast() error {
	if !p.yield(importer.Batch{
		Series: p.g.Take(importer.Tail{}), Position: strconv.FormatInt(p.to, 10), Done: p.done(p.to + 1),
	}, nil) {
		return errEnough
	}
	return nil
}
