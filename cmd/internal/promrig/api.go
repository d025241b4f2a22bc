package promrig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

// ErrAPI means that the HTTP API returned an error.
var ErrAPI = errors.New("promrig: error from the HTTP API")

// API is a client of a server's Prometheus HTTP API.
type API struct {
	// URL is the server's URL without a path.
	URL string
}

// Answer is the result of a query.
type Answer struct {
	Type string
	// Series contains the series, sorted by their labels.
	Series []Series
	// Warnings and Infos are the sorted annotations.
	Warnings, Infos []string
}

// Series is a series of a matrix or vector. Its labels and points are kept as text, so that two series are equal only
// if they agree in every digit.
type Series struct {
	Labels string
	// Floats and Histograms are points as JSON pairs of time and value. A series of a vector has one point.
	Floats, Histograms []string
}

// apiResponse is the JSON object of every response of the API.
type apiResponse struct {
	Status    string          `json:"status"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Data      json.RawMessage `json:"data"`
	Warnings  []string        `json:"warnings"`
	Infos     []string        `json:"infos"`
}

// get sends a request to a path of the API.
func (a API) get(ctx context.Context, path string, params url.Values) (apiResponse, error) {
	var out apiResponse
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL+path+"?"+params.Encode(), nil)
	if err != nil {
		return out, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return out, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return out, fmt.Errorf("%w: %s: %.200s", ErrAPI, response.Status, body)
	}
	if out.Status != "success" {
		return out, fmt.Errorf("%w: %s: %s: %s", ErrAPI, response.Status, out.ErrorType, out.Error)
	}
	return out, nil
}

// QueryRange evaluates a query at every step of a range.
func (a API) QueryRange(ctx context.Context, query string, start, end time.Time, step time.Duration) (Answer, error) {
	return a.query(ctx, "/api/v1/query_range", url.Values{
		"query": {query}, "start": {formatSeconds(start)}, "end": {formatSeconds(end)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	})
}

// Query evaluates a query at one time.
func (a API) Query(ctx context.Context, query string, at time.Time) (Answer, error) {
	return a.query(ctx, "/api/v1/query", url.Values{"query": {query}, "time": {formatSeconds(at)}})
}

// Values returns the values of a label in a time range. It includes only series that match any of the selectors, or all
// series if there are no selectors.
func (a API) Values(ctx context.Context, label string, start, end time.Time, selectors ...string) ([]string, error) {
	got, err := a.get(ctx, "/api/v1/label/"+label+"/values", selectionParams(start, end, selectors...))
	if err != nil {
		return nil, err
	}
	var out []string
	return out, json.Unmarshal(got.Data, &out)
}

// Names returns the result of Values as an Answer with one series per value.
func (a API) Names(ctx context.Context, label, selector string, start, end time.Time) (Answer, error) {
	names, err := a.Values(ctx, label, start, end, selector)
	out := Answer{Type: "names"}
	for _, name := range names {
		out.Series = append(out.Series, Series{Labels: name})
	}
	return out, err
}

// SeriesOf returns the series in a time range that match a selector, as an Answer without points.
func (a API) SeriesOf(ctx context.Context, selector string, start, end time.Time) (Answer, error) {
	got, err := a.get(ctx, "/api/v1/series", selectionParams(start, end, selector))
	if err != nil {
		return Answer{}, err
	}
	var series []json.RawMessage
	out := Answer{Type: "series"}
	err = json.Unmarshal(got.Data, &series)
	for _, labels := range series {
		out.Series = append(out.Series, Series{Labels: string(labels)})
	}
	sort.Slice(out.Series, func(i, j int) bool { return out.Series[i].Labels < out.Series[j].Labels })
	return out, err
}

func selectionParams(start, end time.Time, selectors ...string) url.Values {
	return url.Values{"match[]": selectors, "start": {formatSeconds(start)}, "end": {formatSeconds(end)}}
}

func formatSeconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

func (a API) query(ctx context.Context, path string, params url.Values) (Answer, error) {
	got, err := a.get(ctx, path, params)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", params.Get("query"), err)
	}
	var data struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(got.Data, &data); err != nil {
		return Answer{}, err
	}
	out := Answer{Type: data.ResultType, Warnings: got.Warnings, Infos: got.Infos}
	sort.Strings(out.Warnings)
	sort.Strings(out.Infos)
	if data.ResultType != "matrix" && data.ResultType != "vector" {
		out.Series = []Series{{Floats: []string{string(data.Result)}}}
		return out, nil
	}
	var result []struct {
		Metric     map[string]string `json:"metric"`
		Value      json.RawMessage   `json:"value"`
		Histogram  json.RawMessage   `json:"histogram"`
		Values     []json.RawMessage `json:"values"`
		Histograms []json.RawMessage `json:"histograms"`
	}
	if err := json.Unmarshal(data.Result, &result); err != nil {
		return Answer{}, err
	}
	for _, r := range result {
		out.Series = append(out.Series, Series{
			Labels: labelText(r.Metric), Floats: joinTexts(r.Value, r.Values),
			Histograms: joinTexts(r.Histogram, r.Histograms),
		})
	}
	sort.SliceStable(out.Series, func(i, j int) bool { return out.Series[i].Labels < out.Series[j].Labels })
	return out, nil
}

func joinTexts(one json.RawMessage, more []json.RawMessage) []string {
	var out []string
	if one != nil {
		out = append(out, string(one))
	}
	for _, m := range more {
		out = append(out, string(m))
	}
	return out
}

func labelText(metric map[string]string) string {
	var pairs []string
	for name, value := range metric {
		pairs = append(pairs, name+"="+strconv.Quote(value))
	}
	sort.Strings(pairs)
	return "{" + strings.Join(pairs, ", ") + "}"
}

// Points returns the total number of points in the answer.
func (a Answer) Points() int {
	n := 0
	for _, s := range a.Series {
		n += len(s.Floats) + len(s.Histograms)
	}
	return n
}

// Difference describes the first difference between two answers. It returns "" if they agree in every digit.
func (a Answer) Difference(other Answer) string {
	if a.Type != other.Type {
		return fmt.Sprintf("a %s, not a %s", other.Type, a.Type)
	}
	have := map[string]Series{}
	for _, s := range other.Series {
		have[s.Labels] = s
	}
	for _, s := range a.Series {
		o, ok := have[s.Labels]
		if !ok {
			return "no series " + s.Labels
		}
		if d := differenceOf(s.Floats, o.Floats); d != "" {
			return s.Labels + ": " + d
		}
		if d := differenceOf(s.Histograms, o.Histograms); d != "" {
			return s.Labels + ": histograms: " + d
		}
		delete(have, s.Labels)
	}
	for l := range have {
		return "a series too many: " + l
	}
	if w, o := strings.Join(append(a.Warnings, a.Infos...), "; "),
		strings.Join(append(other.Warnings, other.Infos...), "; "); w != o {
		return fmt.Sprintf("annotations %q, not %q", o, w)
	}
	return ""
}

func differenceOf(want, got []string) string {
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Sprintf("point %d of %d is %s, not %s", i, len(want), got[i], want[i])
		}
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d points, not %d", len(got), len(want))
	}
	return ""
}

// PostEmpty sends an empty POST to a path of a server and returns an error unless the status is 2xx.
func PostEmpty(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // The text is only informative.
		return fmt.Errorf("%w: POST %s: %s: %s", ErrAPI, url, response.Status, body)
	}
	return nil
}
