package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
)

// maxFindings is the max number of wrong or missing samples that are described. Further ones are only counted.
const maxFindings = 10

// maxReadSamples is the approximate max number of samples per read.
const maxReadSamples = 1_000_000

// slackSteps is the number of steps that are read after the last acknowledged step. These steps may contain samples
// that were stored but not acknowledged. Such samples must also be correct.
const slackSteps = 1000

// maxReadBytes is the max size of a remote read response, both compressed and decompressed.
const maxReadBytes = 1 << 30

// Reader is the source of the stored samples.
type Reader struct {
	// URL is the remote read endpoint.
	URL string
	// Tenant is sent in the header X-Scope-OrgID; empty: no header.
	Tenant string
	// Client defaults to http.DefaultClient.
	Client *http.Client
}

// Finding is the result of a comparison.
type Finding struct {
	// Acknowledged is the number of acknowledged samples, and Seen is the number of samples found. Seen is larger if
	// requests were stored but their acknowledgements were lost.
	Acknowledged, Seen int64
	// Missing is the number of acknowledged samples that weren't found. Wrong is the number of samples with a wrong
	// value, an unknown time or an unknown series, and of duplicates.
	Missing, Wrong int64
	// Examples contains descriptions of the first missing and wrong samples.
	Examples []string
}

// IsOK reports whether there are neither missing nor wrong samples.
func (f Finding) IsOK() bool { return f.Missing == 0 && f.Wrong == 0 }

func (f Finding) String() string {
	return fmt.Sprintf("%d samples acknowledged, %d found, %d missing, %d wrong\n%s",
		f.Acknowledged, f.Seen, f.Missing, f.Wrong, strings.Join(f.Examples, "\n"))
}

func (f *Finding) addExample(format string, args ...any) {
	if len(f.Examples) < maxFindings {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}

// Verify reads all samples of a workload and compares them bit by bit with the acknowledged samples. acks must not
// change during the call; if the run is in progress, pass a Snapshot. The server may receive more samples of the
// workload in the meantime.
func Verify(ctx context.Context, g *Generator, acks *Acks, from Reader) (Finding, error) {
	v := &verifier{g: g, acks: acks, from: from}
	if v.from.Client == nil {
		v.from.Client = http.DefaultClient
	}
	v.steps = min(g.Steps, acks.lastStep()+1+g.LateSteps+slackSteps)
	for target := range g.targets() {
		if err := v.verifyTarget(ctx, target); err != nil {
			return v.found, err
		}
	}
	return v.found, nil
}

type verifier struct {
	g     *Generator
	acks  *Acks
	from  Reader
	found Finding
	// steps is the number of steps to read.
	steps int
}

// verifyTarget compares the series of one target. Each read covers a limited number of steps.
func (v *verifier) verifyTarget(ctx context.Context, target int) error {
	first := target * seriesPerTarget
	count := min(seriesPerTarget, v.g.Series-first)
	width := max(1, maxReadSamples/count)
	for from := 0; from < v.steps; {
		// Labels change between generations, so a read ends at the end of a generation.
		to := min(from+width, v.steps)
		generation := v.g.generation(target, from)
		for v.g.generation(target, to-1) != generation {
			to--
		}
		if err := v.read(ctx, first, count, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// read compares the steps from (inclusive) to to (exclusive) of count series, starting with first. Their labels must
// not change in this range.
func (v *verifier) read(ctx context.Context, first, count, from, to int) error {
	byLabels := make(map[string]int, count)
	for i := first; i < first+count; i++ {
		byLabels[v.g.Labels(i, from).String()] = i
	}
	answer, err := v.from.read(ctx, v.g.Time(first, from), v.g.Time(first, to-1),
		instanceLabel(first/seriesPerTarget, v.g.generation(first/seriesPerTarget, from)))
	if err != nil {
		return err
	}
	seen := window{first, from, NewAcks(Workload{Series: count})}
	answered := make(map[string]bool, count)
	for _, series := range answer {
		ls := labelsFrom(series.Labels).String()
		if answered[ls] {
			v.found.Wrong++
			v.found.addExample("duplicate series: %s", ls)
		}
		answered[ls] = true
		i, ok := byLabels[ls]
		if !ok {
			v.found.Wrong++
			v.found.addExample("series that was never sent: %s", ls)
			continue
		}
		v.compare(i, ls, series, seen)
	}
	for i := first; i < first+count; i++ {
		for k := from; k < to; k++ {
			if !v.acks.isAcked(i, k) {
				continue
			}
			v.found.Acknowledged++
			if !seen.isFound(i, k) {
				v.found.Missing++
				v.found.addExample("missing: %s at %d (step %d)", v.g.Labels(i, k), v.g.Time(i, k), k)
			}
		}
	}
	v.found.Seen += seen.acks.count
	return nil
}

// window records which samples of a read were found.
type window struct {
	first, from int
	acks        *Acks
}

func (w window) isFound(i, k int) bool { return w.acks.isAcked(i-w.first, k-w.from) }
func (w window) markFound(i, k int)    { w.acks.markOne(sampleRef{i - w.first, k - w.from}) }

func (v *verifier) compare(i int, ls string, series *prompb.TimeSeries, seen window) {
	step := func(t int64) (int, bool) {
		k, ok := v.g.Step(i, t)
		switch {
		case !ok || k < seen.from:
			v.found.Wrong++
			v.found.addExample("sample that was never sent: %s at %d", ls, t)
			return 0, false
		case seen.isFound(i, k):
			v.found.Wrong++
			v.found.addExample("duplicate sample: %s at %d (step %d; the series has %d samples and %d histograms)",
				ls, t, k,
				len(series.Samples), len(series.Histograms))
			return 0, false
		}
		seen.markFound(i, k)
		return k, true
	}
	for _, s := range series.Samples {
		k, ok := step(s.Timestamp)
		if !ok {
			continue
		}
		want := math.Float64bits(v.g.Value(i, k))
		if want == negativeZero {
			want = 0 // Protocol buffers omit a number that equals 0, and so lose its sign.
		}
		if got := math.Float64bits(s.Value) &^ signOfZero(s.Value); v.g.IsHistogram(i) || got != want {
			v.found.Wrong++
			v.found.addExample("wrong: %s at %d is %x, not %x", ls, s.Timestamp, got, want)
		}
	}
	for _, h := range series.Histograms {
		k, ok := step(h.Timestamp)
		if ok && !v.sameHistogram(i, k, h) {
			v.found.Wrong++
			v.found.addExample("wrong: %s at %d is %s", ls, h.Timestamp, h.String())
		}
	}
}

const negativeZero = 1 << 63

// signOfZero returns the sign bit if v is -0, and otherwise 0.
func signOfZero(v float64) uint64 {
	if v == 0 {
		return negativeZero
	}
	return 0
}

func (v *verifier) sameHistogram(i, k int, got prompb.Histogram) bool {
	if !v.g.IsHistogram(i) {
		return false
	}
	integer, float := v.g.Histogram(i, k)
	if integer != nil {
		return !got.IsFloatHistogram() && got.ToIntHistogram().Equals(integer)
	}
	return got.IsFloatHistogram() && got.ToFloatHistogram().Equals(float)
}

func labelsFrom(pairs []prompb.Label) labels.Labels {
	b := labels.NewScratchBuilder(len(pairs))
	for _, l := range pairs {
		b.Add(l.Name, l.Value)
	}
	b.Sort()
	return b.Labels()
}

// read reads the samples of one target from minT to maxT, both inclusive.
func (r Reader) read(ctx context.Context, minT, maxT int64, instance string) ([]*prompb.TimeSeries, error) {
	message, err := proto.Marshal(&prompb.ReadRequest{Queries: []*prompb.Query{{
		StartTimestampMs: minT, EndTimestampMs: maxT,
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: "instance", Value: instance}},
	}}})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL,
		bytes.NewReader(snappy.Encode(nil, message)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "snappy")
	request.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	if r.Tenant != "" {
		request.Header.Set("X-Scope-OrgID", r.Tenant)
	}
	response, err := r.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReadBytes))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("bench: remote read: %s: %s", response.Status,
			bytes.TrimSpace(body[:min(len(body), 1000)]))
	}
	if n, err := snappy.DecodedLen(body); err != nil || n > maxReadBytes {
		return nil, fmt.Errorf("bench: remote read: response of %d bytes: %w", n, err)
	}
	body, err = snappy.Decode(nil, body)
	if err != nil {
		return nil, fmt.Errorf("bench: remote read: %w", err)
	}
	var answer prompb.ReadResponse
	if err := proto.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("bench: remote read: %w", err)
	}
	if len(answer.Results) != 1 {
		return nil, fmt.Errorf("bench: remote read: %d results for one query", len(answer.Results))
	}
	return answer.Results[0].Timeseries, nil
}
