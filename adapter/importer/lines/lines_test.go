package lines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
)

// samplesOf returns the samples of batches as lines that compare bit by bit.
func samplesOf(batches []importer.Batch) (all []string) {
	for _, b := range batches {
		for _, s := range b.Series {
			for i, t := range s.Samples.T {
				all = append(all, fmt.Sprintf("%s %d %016x", s.Labels, t, math.Float64bits(s.Samples.V[i])))
			}
		}
	}
	slices.Sort(all)
	return all
}

// batchesOf reads a text from a position on.
func batchesOf(
	ctx context.Context, f Format, text, after string, sel importer.Selection,
) (batches []importer.Batch, err error) {
	s := New(Options{
		Path: "-", Stdin: io.MultiReader(strings.NewReader(text)), Format: f, Selection: sel, BatchBytes: 1 << 20,
	})
	for b, err := range s.Batches(ctx, after) {
		if err != nil {
			return batches, err
		}
		batches = append(batches, b)
	}
	return batches, nil
}

func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	text := strings.Join([]string{
		"# HELP http How many.", "# TYPE http counter", "# UNIT http ",
		`http_total{code="200",path="/a\"b\\c\nd"} 17 1798761600.125 # {trace_id="a"} 1 2`,
		`http_total{code="500"} 1e3 1.001`, "# TYPE lat histogram", `lat_bucket{le="1"} 5 -0.567`,
		`lat_bucket{le="+Inf"} NaN 1e3`, "# TYPE g gauge", "g -0 0", "g +Inf 2", "g{} -Inf 1000000000.567",
		`{"with.dots","a.b"="c"} 0x 5`, "# EOF", "",
	}, "\r\n")
	text = strings.ReplaceAll(text, "0x 5", "3 5")
	batches, err := batchesOf(t.Context(), OpenMetrics, text, "", importer.Everything())
	require.NoError(t, err)
	nan, inf := math.Float64bits(math.Float64frombits(value.NormalNaN)), math.Float64bits(math.Inf(1))
	want := []string{
		fmt.Sprintf(`%s 1798761600125 %016x`,
			labels.FromStrings("__name__", "http_total", "code", "200", "path", "/a\"b\\c\nd"), math.Float64bits(17)),
		fmt.Sprintf(`{__name__="http_total", code="500"} 1001 %016x`, math.Float64bits(1000)),
		fmt.Sprintf(`{__name__="lat_bucket", le="1.0"} -567 %016x`, math.Float64bits(5)),
		fmt.Sprintf(`{__name__="lat_bucket", le="+Inf"} 1000000 %016x`, nan),
		`{__name__="g"} 0 8000000000000000`, fmt.Sprintf(`{__name__="g"} 2000 %016x`, inf),
		fmt.Sprintf(`{__name__="g"} 1000000000567 %016x`, math.Float64bits(math.Inf(-1))),
		fmt.Sprintf(`{__name__="with.dots", "a.b"="c"} 5000 %016x`, math.Float64bits(3)),
	}
	slices.Sort(want)
	require.Equal(t, want, samplesOf(batches))
}

// TestWhatIsWrongIsNamed checks that a bad line causes one error with the number of the line, whichever piece contains
// it.
func TestWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	good := strings.Repeat(`a{b="c"} 1 2`+"\n", 20_000)
	typed := "# TYPE a gauge\n" + good
	jsonGood := strings.Repeat(`{"metric":{"__name__":"a"},"values":[1],"timestamps":[2]}`+"\n", 500)
	for _, c := range []struct {
		f          Format
		text, want string
	}{
		{OpenMetrics, good + "a 1\n# EOF\n", "line 20001: a has no timestamp"},
		{OpenMetrics, typed + "a 1\n# EOF\n", "line 20002: a has no timestamp"},
		{OpenMetrics, good + "}{\n" + good + "# EOF\n", "line 20001: expected a valid start token"},
		{OpenMetrics, good + "a{b=\"c\" 1 2\n" + good + "# EOF\n", "line 20001: expected"},
		{OpenMetrics, "a x 1\n# EOF\n", "line 1: "},
		{OpenMetrics, good + "# TYPE a nonsense\n" + good + "# EOF\n", "line 20001: invalid metric type"},
		{OpenMetrics, "# TYPE a gauge\na 1 1\n# TYPE b gauge\nb 1\n# TYPE c gauge\nc 1 1\n# EOF\n", "line 4: b has no timestamp"},
		{OpenMetrics, good, "line 20000: the text ends without # EOF"},
		{OpenMetrics, "", "line 0: the text ends without # EOF"},
		{OpenMetrics, "a 1 1\n# EOF\na 1 2\n", "line 3: there is text after # EOF"},
		{OpenMetrics, "a 1 1\n\n# EOF\n", "line 2: the line is empty"},
		{OpenMetrics, "a 1 NaN\n# EOF\n", "line 1: "},
		{OpenMetrics, "a 1 1e300\n# EOF\n", "line 1: the timestamp 1e300 is out of range"},
		{OpenMetrics, "a{b=\"" + strings.Repeat("x", maxMetricLine) + "\"} 1 1\n# EOF\n", "line 1: has 1048587 bytes"},
		{JSONLines, jsonGood + "{\n", "line 501: ends where"},
		{JSONLines, "null", `line 1: expected { at byte 1, found "null"`},
		{JSONLines, `{"metric":{"a":"b"},"values":[1,2],"timestamps":[1]}`, "line 1: has 2 values but 1 timestamps"},
		{JSONLines, `{"metric":{"a":"b"},"values":["x"],"timestamps":[1]}`, `is not a number`},
		{JSONLines, `{"metric":{"a":"b"},"values":[1],"timestamps":[1.5]}`, "expected a timestamp in milliseconds"},
		{JSONLines, `{"metric":{"a":1},"values":[1],"timestamps":[1]}`, "expected a string at byte 6"},
		{JSONLines, `{"metric":{"a":"b","a":"c"},"values":[1],"timestamps":[1]}`, `has the label "a" twice`},
		{JSONLines, `{"metric":{},"metric":{},"values":[1],"timestamps":[1]}`, `has "metric" twice`},
		{JSONLines, `{"values":[1],"timestamps":[1]}`, `missing "metric"`},
		{JSONLines, `{"metric":{},"values":[1],"timestamps":[1]} x`, `expected the end of the line`},
		{JSONLines, `{"metric":{},"values":[1],"timestamps":[1],"nan_bits":{"0":"7ff0000000000002"}}`, `which is not NaN`},
		{JSONLines, `{"metric":{},"values":[null],"timestamps":[1],"nan_bits":{"0":"0"}}`, `which is not NaN`},
		{JSONLines, `{"metric":{},"values":[null],"timestamps":[1],"nan_bits":{"7":"7ff0000000000002"}}`, `which doesn't exist`},
		{JSONLines, `{"metric":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, `values are nested more than 20 levels deep`},
	} {
		_, err := batchesOf(t.Context(), c.f, c.text, "", importer.Everything())
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, len(err.Error()), 400)
	}
	_, err := batchesOf(t.Context(), OpenMetrics, "a 1 1\n", "x", importer.Everything())
	require.ErrorContains(t, err, `the checkpoint has an invalid position: "x"`)
}

// endlessReader returns one line that never ends.
type endlessReader struct{ read int }

func (e *endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	e.read += len(p)
	return len(p), nil
}

// TestLongLineEnds checks that reading stops at a line that is too long.
func TestLongLineEnds(t *testing.T) {
	t.Parallel()
	in := &endlessReader{}
	s := New(Options{Path: "-", Stdin: in, Format: JSONLines, Selection: importer.Everything()})
	var last error
	for _, err := range s.Batches(t.Context(), "") {
		last = err
	}
	require.ErrorContains(t, last, "lines: line 1: the line is longer than 64 MiB")
	require.Less(t, in.read, maxLine+1<<20)
}

// manyLines returns a text with more samples than fit in a batch: some days of some series, day by day.
func manyLines(f Format, series, days, samples int) string {
	var b strings.Builder
	if f.name == OpenMetrics.name {
		b.WriteString("# TYPE m gauge\n")
	}
	for d := range days {
		for s := range series {
			at := int64(1_700_000_000_000) + int64(d)*86_400_000
			if f.name == OpenMetrics.name {
				for i := range samples {
					fmt.Fprintf(&b, "m{s=\"%d\"} %d %d.%03d\n", s, i*s, at/1000+int64(i), i%1000)
				}
				continue
			}
			var values, times []string
			for i := range samples {
				values = append(values, strconv.Itoa(i*s))
				times = append(times, strconv.FormatInt(at+int64(i)*1000+int64(i)%1000, 10))
			}
			fmt.Fprintf(&b, `{"metric":{"__name__":"m","s":"%d"},"values":[%s],"timestamps":[%s]}`+"\n",
				s, strings.Join(values, ","), strings.Join(times, ","))
		}
	}
	if f.name == OpenMetrics.name {
		b.WriteString("# EOF\n")
	}
	return b.String()
}

// TestResume resumes from the position of each batch, and expects the samples that the first run read after this batch.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, f := range []Format{OpenMetrics, JSONLines} {
		text := manyLines(f, 7, 20, 900)
		all, err := batchesOf(t.Context(), f, text, "", importer.Everything())
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(all), 2)
		require.Len(t, samplesOf(all), 7*20*900)
		for i := range all[:len(all)-1] {
			rest, err := batchesOf(t.Context(), f, text, all[i].Position, importer.Everything())
			require.NoError(t, err)
			require.Equal(t, samplesOf(all[i+1:]), samplesOf(rest))
		}
		for _, b := range all { // a day of a series is never split
			for _, s := range b.Series {
				require.Zero(t, len(s.Samples.T)%900, "%s: %d", s.Labels, len(s.Samples.T))
			}
		}
	}
}

// TestResumeAfterAnError corrects the line that failed a run. The next run starts with this line, and both runs
// together return every sample once.
func TestResumeAfterAnError(t *testing.T) {
	t.Parallel()
	json := func(v int) string {
		return fmt.Sprintf(`{"metric":{"__name__":"a"},"values":[%d],"timestamps":[%d]}`+"\n", v, v)
	}
	long := strings.Repeat("# HELP a b\n", pieceBytes/8)
	for _, c := range []struct {
		f           Format
		bad, better string // better replaces bad and all text after it
		rest        string
		samples     int // read by the first run
	}{
		{OpenMetrics, "a 1 1\na 2\n", "a 2 2\n", "a 3 3\n# EOF\n", 1},
		{OpenMetrics, "# TYPE a gauge\na 1 1\na 2 x\n", "a 2 2\n", "a 3 3\n# EOF\n", 1},
		{OpenMetrics, "a 1 1\n# TYPE a nonsense\n", "# TYPE a counter\n", "a_total 3 3\n# EOF\n", 1},
		{OpenMetrics, "# TYPE b histogram\nb_bucket{le=\"1\"} 1 1\n# TYPE a nonsense\n", "b_bucket{le=\"1\"} 1 2\n", "# EOF\n", 1},
		{OpenMetrics, "a 1 1\n\n", "a 2 2\n", "# EOF\n", 1},
		{OpenMetrics, "a 1 1\na{b=\"" + strings.Repeat("x", maxMetricLine) + "\"} 1 1\n", "a 2 2\n", "# EOF\n", 1},
		{OpenMetrics, long + "a 1 1\n" + long + "a 2 2\n" + "a 3\n", "a 3 3\n", long + "# EOF\n", 2},
		{OpenMetrics, "a 1 1\nhttp_", "http_requests 2 2\n", "# EOF\n", 1},
		{OpenMetrics, "a 1 1\na 2 17956512", "a 2 1795651202\n", "# EOF\n", 1},
		{OpenMetrics, "a 1 1\na 2 2", "a 2 2\n", "# EOF\n", 1},
		{OpenMetrics, "a 1 1\n# EO", "a 2 2\n", "# EOF\n", 1},
		{JSONLines, json(1) + "{\n", json(2), json(3), 1},
		{JSONLines, json(1) + strings.TrimSuffix(json(22), "2]}\n"), json(22), json(3), 1},
		{JSONLines, json(1) + "{\"metric\":{\"a\":1},\"values\":[1],\"timestamps\":[1]}\n" + json(3), json(2) + json(3), json(4), 1},
	} {
		first, err := batchesOf(t.Context(), c.f, c.bad, "", importer.Everything())
		require.ErrorContains(t, err, "lines: line ", c.bad)
		require.Len(t, samplesOf(first), c.samples, importer.Shorten(c.bad))
		at, err := parsePosition(first[len(first)-1].Position)
		require.NoError(t, err)
		corrected := c.bad[:at.Bytes] + c.better + c.rest
		second, err := batchesOf(t.Context(), c.f, corrected, first[len(first)-1].Position, importer.Everything())
		require.NoError(t, err)
		all, err := batchesOf(t.Context(), c.f, corrected, "", importer.Everything())
		require.NoError(t, err)
		both := samplesOf(slices.Concat(first, second))
		require.Equal(t, samplesOf(all), both, importer.Shorten(c.bad))
	}
}

// TestResumeOfAnotherInput checks that an input is read from its start if the part that earlier runs read has changed.
// Otherwise only the part after the position is read.
func TestResumeOfAnotherInput(t *testing.T) {
	t.Parallel()
	json := func(v int) string {
		return fmt.Sprintf(`{"metric":{"__name__":"a"},"values":[%d],"timestamps":[%d]}`+"\n", v, v)
	}
	for _, c := range []struct {
		f           Format
		first, then string
		restarted   bool
		samples     int // read by the second run
		wrong       string
	}{
		{OpenMetrics, "a 1 1\n# EOF\n", "a 1 1\n# EOF\n", false, 0, ""},
		{OpenMetrics, "a 1 1\n# EOF\n", "b 1 1\n# EOF\n", true, 1, ""},
		{OpenMetrics, "a 1 1\n# EOF\n", "# EOF\n", true, 0, ""},
		{OpenMetrics, "a 1 1\n# EOF\n", "a 1 1\na 2 2\n# EOF\n", false, 1, ""},
		{OpenMetrics, "# TYPE a counter\na_total 1 1\n# EOF", "# TYPE a counter\na_total 1 1\na_total 2 2\n# EOF\n", false, 1, ""},
		{OpenMetrics, "a 1 1\n# EOF\n", "a 1 1\n# EOF\na 2 2\n# EOF\n", false, 0, "line 3: there is text after # EOF"},
		{OpenMetrics, "a 1 1\n# EOF\na 2 2\n# EOF\n", "a 1 1\n# EOF\na 2 2\n# EOF\n", false, 0, "line 3: there is text after # EOF"},
		{OpenMetrics, "a 1 1\n# HELP b long\nb 2\n", "a 1 1\n# HELP b x\nb 2 2\n# EOF\n", true, 2, ""},
		{JSONLines, json(1), json(1), false, 0, ""},
		{JSONLines, json(1), json(2), true, 1, ""},
		{JSONLines, json(1), json(1) + json(2), false, 1, ""},
		{JSONLines, strings.TrimSpace(json(1)), json(1) + json(2), false, 1, ""},
		{JSONLines, json(1) + json(2), json(1), true, 1, ""},
	} {
		first, _ := batchesOf(t.Context(), c.f, c.first, "", importer.Everything())
		require.False(t, first[0].Restarted)
		second, err := batchesOf(t.Context(), c.f, c.then, first[len(first)-1].Position, importer.Everything())
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, c.restarted, second[0].Restarted, c.then)
		require.Len(t, samplesOf(second), c.samples, c.then)
	}
}

// TestTruncatedText checks that a text that ends within a line is rejected, even if the truncated line is valid.
func TestTruncatedText(t *testing.T) {
	t.Parallel()
	json := `{"metric":{"__name__":"a"},"values":[1],"timestamps":[1]}`
	for _, c := range []struct {
		f    Format
		text string
	}{
		{OpenMetrics, "a 1 1795651202\n# EOF"}, {JSONLines, json + "\n" + json},
	} {
		whole, err := batchesOf(t.Context(), c.f, c.text, "", importer.Everything())
		require.NoError(t, err)
		for n := 1; n < len(c.text); n++ {
			batches, err := batchesOf(t.Context(), c.f, c.text[:n], "", importer.Everything())
			require.Subset(t, samplesOf(whole), samplesOf(batches), c.text[:n])
			if c.f.name == JSONLines.name && (n == len(json) || n == len(json)+1) {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, "truncated", c.text[:n])
		}
	}
}

// TestFile checks that a file is read from the position on, and that progress is reported.
func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.om")
	require.NoError(t, os.WriteFile(path, []byte("a{x=\"1\"} 1 1\nb 2 2\nb 2 3\n# EOF\n"), 0o600))
	sel := importer.Everything()
	sel.Matchers = [][]*labels.Matcher{
		{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "b")},
		{labels.MustNewMatcher(labels.MatchEqual, "x", "2")},
	}
	sel.MaxMS = 2000
	sel.Add = []labels.Label{{Name: "cluster", Value: "c"}}
	s := New(Options{Path: path, Format: OpenMetrics, Selection: sel})
	plan, err := s.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, "OpenMetrics in "+path+", 31 bytes", plan.Describe())
	for range 2 {
		var got []importer.Batch
		for b, err := range s.Batches(t.Context(), "") {
			require.NoError(t, err)
			got = append(got, b)
		}
		require.Len(t, got, 1)
		require.Equal(
			t, []string{fmt.Sprintf(`{__name__="b", cluster="c"} 2000 %016x`, math.Float64bits(2))}, samplesOf(got),
		)
		require.InDelta(t, 1, got[0].Done, 6.1/31, "all but the line # EOF, which is read again")
	}
	_, err = New(Options{Path: filepath.Dir(path), Format: OpenMetrics}).Plan(t.Context())
	require.ErrorContains(t, err, "is a folder")
	_, err = New(Options{Path: path + "x", Format: OpenMetrics}).Plan(t.Context())
	require.ErrorContains(t, err, "no such file")
}

// FuzzJSONLine compares the samples with the values that encoding/json decodes, if encoding/json accepts the line.
func FuzzJSONLine(f *testing.F) {
	f.Add([]byte(
		`{"metric":{"__name__":"a","b":"é\n\u00e9"},"values":[1,-0.5e3,null,"Infinity","-Inf"],"timestamps":[1,2,3,4,5],"nan_bits":{"2":"7ff8000000000001"}}`,
	))
	f.Add([]byte(` { "x" : [ { } , true ] , "timestamps":[-1] , "values":[1e400], "metric":{} } `))
	f.Add([]byte(`{"metric":{"a":"b"},"values":[],"timestamps":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.ContainsAny(text, "\n\r") {
			return
		}
		batches, err := batchesOf(t.Context(), JSONLines, string(text), "", importer.Everything())
		var want struct {
			Metric     map[string]string `json:"metric"`
			Values     []float64         `json:"values"`
			Timestamps []int64           `json:"timestamps"`
		}
		if err != nil || json.Unmarshal(text, &want) != nil || bytes.Contains(text, []byte("null")) {
			return
		}
		for name := range want.Metric {
			if name == "" {
				return
			}
		}
		got := samplesOf(batches)
		if len(want.Timestamps) == 0 {
			require.Empty(t, got)
			return
		}
		require.Len(t, got, len(want.Timestamps))
		var lines []string
		for i, at := range want.Timestamps {
			lines = append(
				lines, fmt.Sprintf("%s %d %016x", labels.FromMap(want.Metric), at, math.Float64bits(want.Values[i])),
			)
		}
		slices.Sort(lines)
		require.Equal(t, lines, got)
	})
}

// FuzzOpenMetrics compares the samples with the result of Prometheus' parser for the whole text.
func FuzzOpenMetrics(f *testing.F) {
	f.Add([]byte("# TYPE a histogram\na_bucket{le=\"1\"} 1 2.5\na 1 3 # {a=\"b\"} 1\n# HELP a b\n# EOF\n"))
	f.Add([]byte("{\"a b\",c=\"d\"} 1 1\nb +Inf -1.001\n# UNIT b \n# EOF"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("\r")) {
			return
		}
		batches, err := batchesOf(t.Context(), OpenMetrics, string(text), "", importer.Everything())
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		n, p := 0, textparse.NewOpenMetricsParser(text, labels.NewSymbolTable())
		for {
			entry, err := p.Next()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			if entry == textparse.EntrySeries {
				n++
			}
		}
		require.Len(t, samplesOf(batches), n)
	})
}
