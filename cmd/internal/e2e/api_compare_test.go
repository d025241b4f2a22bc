package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// comparedHeaders contains the response headers that affect clients.
var comparedHeaders = []string{
	"Content-Type", "Content-Encoding", "Vary", "Allow", "Location", "X-Content-Type-Options", "Cache-Control",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Expose-Headers",
}

// TestAPIAnswersAsPrometheusDoes checks that Cassia and a real Prometheus return the same responses to the same
// requests, except for the listed deviations.
func TestAPIAnswersAsPrometheusDoes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a real Prometheus: leave -short out")
	}
	r := newAPIRig(t)
	t.Run("calls", func(t *testing.T) { testAPICalls(t, r) })
	t.Run("client_golang", func(t *testing.T) { testClientGolang(t, r) })
	t.Run("promtool", func(t *testing.T) { testPromtool(t, r) })
}

// testAPICalls sends the calls in testdata/api-calls.txt to both servers.
func testAPICalls(t *testing.T, r apiRig) {
	text, err := os.ReadFile("testdata/api-calls.txt")
	require.NoError(t, err)
	used, calls, wrong := map[int]bool{}, 0, 0
	for number, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		call, err := r.parseAPICall(line)
		require.NoError(t, err, "line %d", number+1)
		calls++
		theirs, err := call.ask(t.Context(), r.prometheus)
		require.NoError(t, err, line)
		ours, err := call.ask(t.Context(), r.cassia)
		require.NoError(t, err, line)
		for _, d := range differences(call, theirs, ours) {
			if i := deviationFor(line, d); i >= 0 {
				used[i] = true
				continue
			}
			wrong++
			t.Errorf("line %d: %s\n%s", number+1, line, d)
		}
	}
	for i, d := range deviations {
		if !used[i] && !slices.Contains(momentary, d.calls) {
			t.Errorf("the answers to %s don't differ in %s any more: take it from the table of deviations",
				d.calls, d.differs)
		}
	}
	t.Logf("%d calls compared, %d differences", calls, wrong)
}

func deviationFor(line, difference string) int {
	return slices.IndexFunc(deviations, func(d deviation) bool {
		return regexp.MustCompile(d.calls).MatchString(line) && regexp.MustCompile(d.differs).MatchString(difference)
	})
}

// differences returns the differences between the responses of Prometheus (theirs) and Cassia (ours). Each starts with
// "code", "header" or "body".
func differences(call apiCall, theirs, ours apiAnswer) (out []string) {
	if theirs.code != ours.code {
		out = append(out, fmt.Sprintf("code: %d, not %d: %.300s", ours.code, theirs.code, ours.body))
	}
	for _, name := range comparedHeaders {
		if want, got := theirs.header.Values(name), ours.header.Values(name); !slices.Equal(want, got) {
			out = append(out, fmt.Sprintf("header %s: %q, not %q", name, got, want))
		}
	}
	var want, got any
	if json.Unmarshal(theirs.body, &want) != nil {
		if !call.shape && !bytes.Equal(theirs.body, ours.body) {
			out = append(out, fmt.Sprintf("body: %.600q\n  not %.600q", ours.body, theirs.body))
		}
		return out
	}
	if err := json.Unmarshal(ours.body, &got); err != nil {
		return append(out, fmt.Sprintf("body: %v: %.300q\n  not %.300q", err, ours.body, theirs.body))
	}
	for _, v := range []any{want, got} { // Prometheus stores these lists in a map.
		sortTexts(v, "infos")
		sortTexts(v, "warnings")
	}
	if call.shape {
		want, got = shapeOf(want), shapeOf(got)
	} else if !ordered.MatchString(call.line) || unordered.MatchString(call.line) {
		want, got = inOrder(want), inOrder(got)
	}
	if !reflect.DeepEqual(want, got) {
		out = append(out, fmt.Sprintf("body: %.900s\n  not %.900s", jsonOf(got), jsonOf(want)))
	}
	return out
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// ordered matches calls whose results have a meaningful order of series or names, or must have Prometheus' order, such
// as the results of instant queries. Only the results of these calls are compared without sorting them first. unordered
// matches the exceptions: functions whose results are in the arbitrary order of a map.
var (
	ordered   = regexp.MustCompile(`sort|topk|bottomk|/labels|/label/|/query\b`)
	unordered = regexp.MustCompile(`count_values|histogram_quantiles`)
)

// sortTexts sorts the list in an object's field with the given name.
func sortTexts(answer any, name string) {
	object, _ := answer.(map[string]any)
	list, _ := object[name].([]any)
	sort.SliceStable(list, func(i, j int) bool { return jsonOf(list[i]) < jsonOf(list[j]) })
}

// inOrder sorts every list of objects in a value, because the order of the objects is arbitrary.
func inOrder(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = inOrder(v[k])
		}
	case []any:
		objects := len(v) > 0
		for i := range v {
			v[i] = inOrder(v[i])
			_, object := v[i].(map[string]any)
			objects = objects && object
		}
		if objects {
			sort.SliceStable(v, func(i, j int) bool { return jsonOf(v[i]) < jsonOf(v[j]) })
		}
	}
	return v
}

// shapeOf returns the keys and the types in a value. For a list, it merges the shapes of all elements.
func shapeOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = shapeOf(v[k])
		}
		return out
	case []any:
		shapes := map[string]bool{}
		for _, e := range v {
			shapes[jsonOf(shapeOf(e))] = true
		}
		return slices.Sorted(maps.Keys(shapes))
	case nil:
		return "null"
	default:
		return reflect.TypeOf(v).String()
	}
}
