package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
)

// stageTable is another name for engine.Stage, for functions with a variable named engine.
var stageTable = engine.Stage

// protocolSend is a request of a history. It sends samples of some series of a tenant.
type protocolSend struct {
	tenant  string
	samples []protocolSendSample
}

type protocolSendSample struct {
	series string
	t, st  int64
	float  float64
	hist   *chunk.Histogram
	trace  string // trace of an exemplar; "" for a sample
}

func protocolLabels(series string) labels.Labels {
	metric, host, _ := strings.Cut(series, "/")
	return labels.FromStrings(labels.MetricName, metric, "host", host)
}

// parseWrite parses a line that sends samples.
func parseWrite(base time.Time, line string) (*protocolSend, error) {
	words := strings.Fields(line)
	if len(words) < 3 {
		return nil, fmt.Errorf("a write needs a tenant and samples: %q", line)
	}
	send := &protocolSend{tenant: words[1]}
	if words[0] == "bulk" {
		return send, send.bulk(base, words[2:])
	}
	for _, word := range words[2:] {
		series, rest, ok := strings.Cut(word, "@")
		at, v, ok2 := strings.Cut(rest, "=")
		if !ok || !ok2 {
			return nil, fmt.Errorf("no sample: %q", word)
		}
		d, err := time.ParseDuration(at)
		if err != nil {
			return nil, err
		}
		x := protocolSendSample{series: series, t: base.Add(d).UnixMilli()}
		v, st, _ := strings.Cut(v, "/")
		if st != "" {
			if x.st, err = strconv.ParseInt(st, 10, 64); err != nil {
				return nil, err
			}
		}
		if n, ok := strings.CutPrefix(v, "h"); ok {
			i, err := strconv.Atoi(n)
			if err != nil || i >= len(protocolHistograms) {
				return nil, fmt.Errorf("no histogram: %q", v)
			}
			x.hist = &protocolHistograms[i]
		} else if n, ok := strings.CutPrefix(v, "e"); ok {
			x.trace = n
			if x.float, err = strconv.ParseFloat(n, 64); err != nil {
				return nil, err
			}
		} else if x.float, err = parseProtocolFloat(v); err != nil {
			return nil, err
		}
		send.samples = append(send.samples, x)
	}
	return send, nil
}

// bulk parses the arguments SERIES TIME STEP N VALUE.
func (send *protocolSend) bulk(base time.Time, words []string) error {
	if len(words) != 5 {
		return errors.New("bulk needs a series, a time, a step, a number and a value")
	}
	at, err1 := time.ParseDuration(words[1])
	step, err2 := time.ParseDuration(words[2])
	n, err3 := strconv.Atoi(words[3])
	v, err4 := strconv.ParseFloat(words[4], 64)
	for i := range n {
		send.samples = append(send.samples, protocolSendSample{
			series: words[0], t: base.Add(at + time.Duration(i)*step).UnixMilli(), float: v + float64(i),
		})
	}
	return errors.Join(err1, err2, err3, err4)
}

// batch returns a batch with the samples of the request, and the accepted samples.
func (send *protocolSend) batch(s *Store) (b *Batch, taken []protocolSendSample, err error) {
	b = s.NewBatch(send.tenant)
	for _, x := range send.samples {
		ref, ok := b.Lookup([]byte(x.series))
		if !ok {
			if ref, err = b.Define([]byte(x.series), protocolLabels(x.series)); err != nil {
				b.Release()
				return nil, nil, err
			}
		}
		switch {
		case x.trace != "":
			err = b.Exemplar(ref, x.exemplar())
		case x.hist != nil:
			h, fh := copyHistogram(*x.hist)
			err = b.Histogram(ref, x.t, x.st, h, fh)
		default:
			err = b.Float(ref, x.t, x.st, x.float)
		}
		switch {
		case err == nil:
			taken = append(taken, x)
		case !errors.Is(err, ErrTooOld) && !errors.Is(err, ErrTooFarAhead) && !errors.Is(err, ErrMaybeAhead) &&
			!errors.Is(err, ErrDroppedAhead):
			b.Release()
			return nil, nil, err
		}
	}
	return b, taken, nil
}

func (x *protocolSendSample) value() protocolValue {
	if x.hist != nil {
		return histogramValue(*x.hist, x.st)
	}
	return protocolValue{bits: math.Float64bits(x.float), st: x.st}
}

// writes sends a request together with the requests that wait for it.
func (r *protocolRun) writes(line string) error {
	lines := append(r.with, line)
	r.with = nil
	sends := make([]*protocolSend, len(lines))
	for i, line := range lines {
		var err error
		if sends[i], err = parseWrite(r.base, line); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	begun := r.model.begun()
	r.eng.begun()
	for _, send := range sends {
		b, taken, err := send.batch(r.store)
		if err != nil {
			return err
		}
		name := func(x *protocolSendSample) protocolSeries { return protocolSeries{send.tenant, x.series} }
		for i := range taken {
			if taken[i].trace != "" {
				r.model.sendExemplar(taken[i].exemplarOf(send.tenant))
				continue
			}
			r.model.send(name(&taken[i]), taken[i].t, taken[i].value())
		}
		wg.Go(func() {
			err := b.Commit(context.Background())
			for i := range taken {
				fact := protocolFact{name(&taken[i]), taken[i].t, taken[i].value()}
				if taken[i].trace != "" {
					fact = taken[i].exemplarOf(send.tenant).fact()
				}
				r.model.landed(fact, err != nil)
			}
			if err != nil {
				r.eng.refused()
				r.tolerate("writing", err)
				return
			}
			for i := range taken {
				if taken[i].trace != "" {
					r.model.exemplarStays(begun, taken[i].exemplarOf(send.tenant))
					continue
				}
				r.model.staysSince(begun, name(&taken[i]), taken[i].t, taken[i].value())
			}
		})
	}
	wg.Wait()
	return nil
}
