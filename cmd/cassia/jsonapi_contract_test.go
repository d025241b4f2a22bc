package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/tenant"
)

// contract is a running server with the OpenAPI description of its JSON API.
type contract struct {
	running
	random *rand.Rand
	model  *openapi3.T
	// seen counts responses by path and status code.
	seen map[string]map[int]int
}

func newContract(t *testing.T, r running, seed uint64) *contract {
	code, text := r.Get(t, "/api/openapi.yaml")
	require.Equal(t, http.StatusOK, code)
	c := &contract{running: r, random: rand.New(rand.NewPCG(seed, 1)), seen: map[string]map[int]int{}}
	var err error
	c.model, err = openapi3.NewLoader().LoadFromData([]byte(text))
	require.NoError(t, err)
	require.NoError(t, c.model.Validate(t.Context()), "the description itself")
	return c
}

// TestContract sends valid and randomly modified calls. Valid calls must not return 5xx, invalid calls must return 4xx,
// and every response must match the description.
func TestContract(t *testing.T) {
	r := startServe(t, "--storage.path="+t.TempDir(), "--retention.raw=0")
	require.Eventually(t, func() bool { code, _ := r.Get(t, "/-/ready"); return code == http.StatusOK },
		cassiatest.Patience, 5*time.Millisecond)
	seed := soak.Seed(t)
	c := newContract(t, r, seed)
	const calls = 60
	for path, item := range c.model.Paths.Map() {
		for method, op := range item.Operations() {
			for wild := range calls {
				// The first call consists of the examples. Later calls omit optional parts, and modify more and more of
				// the values.
				c.callOperation(t, op, method, path, float64(wild)/calls/2)
			}
			c.callOperation(t, op, map[string]string{"GET": "DELETE", "POST": "GET"}[method], path, 0)
			seen := c.seen[path]
			require.Positive(t, seen[http.StatusOK]+seen[http.StatusNoContent], "%s never succeeded: %v", path, seen)
			require.Positive(t, seen[http.StatusBadRequest], "%s never failed: %v", path, seen)
			require.Equal(t, 1, seen[http.StatusMethodNotAllowed], path)
		}
	}
}

// wildTexts contains unusual values for any parameter.
var wildTexts = []string{
	"", "0", "-1", "1e400", "null", "true", " ", "é\u0000", "a=b=c", "[]", "{}", "%", "..", "a|b", "x{y=\"z\"}",
	"ALIGN_", "NaN", "2020-13-01T00:00:00Z", "2020-08-24", "99999999999999999999", strings.Repeat("long", 100),
	"\u200b\U0001f600", `\"`,
}

func (c *contract) pickText(texts ...string) string { return texts[c.random.IntN(len(texts))] }

// callOperation sends a request for an operation. wild is the probability with which each part is replaced by an
// unusual value.
func (c *contract) callOperation(t *testing.T, op *openapi3.Operation, method, path string, wild float64) {
	query, header := url.Values{}, http.Header{}
	for _, ref := range op.Parameters {
		p := ref.Value
		if !p.Required && wild > 0 && c.random.Float64() < 0.4 || p.Required && c.random.Float64() < wild/4 {
			continue
		}
		enum := p.Schema.Value.Enum
		values := []string{"t-1"}
		switch {
		case c.random.Float64() < wild:
			values = []string{c.pickText(wildTexts...)}
		case wild > 0 && len(enum) > 0:
			values = []string{enum[c.random.IntN(len(enum))].(string)}
		case p.Example != nil:
			list, ok := p.Example.([]any)
			if !ok {
				list = []any{p.Example}
			}
			values = nil
			for _, one := range list {
				values = append(values, fmt.Sprint(one))
			}
		}
		if p.In == "header" {
			header.Set(p.Name, values[0])
		} else {
			query[p.Name] = values
		}
	}
	var body []byte
	if op.RequestBody != nil {
		var err error
		body, err = json.Marshal(c.disturbValue(op.RequestBody.Value.Content.Get("application/json").Example, wild))
		require.NoError(t, err)
		header.Set("Content-Type", "application/json")
	}
	c.requireContract(t, method, path, query, header, body)
}

// disturbValue returns a copy of v in which random parts are replaced by unusual values.
func (c *contract) disturbValue(v any, wild float64) any {
	if c.random.Float64() < wild/4 {
		return []any{nil, true, 1e15, -1.5, "", []any{}, map[string]any{}, c.pickText(wildTexts...)}[c.random.IntN(8)]
	}
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, one := range v {
			out = append(out, c.disturbValue(one, wild))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, one := range v {
			if c.random.Float64() < wild/4 {
				name = c.pickText(wildTexts...)
			}
			out[name] = c.disturbValue(one, wild)
		}
		return out
	case string:
		if c.random.Float64() < wild {
			return c.pickText(wildTexts...)
		}
	}
	return v
}

// requireContract sends a request and requires that the response matches the description.
func (c *contract) requireContract(
	t *testing.T, method, path string, query url.Values, header http.Header, body []byte,
) {
	make := func() *http.Request {
		r, err := http.NewRequest(method, c.URL+path+"?"+query.Encode(), bytes.NewReader(body))
		require.NoError(t, err)
		for name, values := range header {
			r.Header[name] = values
		}
		return r
	}
	told := fmt.Sprintf("%s %s?%s %v %s", method, path, query.Encode(), header, body)
	answer, err := http.DefaultClient.Do(make())
	if err != nil && header.Get(tenant.Header) != "" {
		return // Go's client doesn't send such a header.
	}
	require.NoError(t, err, told)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	told += fmt.Sprintf("\n%d %s", answer.StatusCode, text)
	if c.seen[path] == nil {
		c.seen[path] = map[int]int{}
	}
	c.seen[path][answer.StatusCode]++
	if answer.StatusCode == http.StatusMethodNotAllowed {
		require.NotEmpty(t, answer.Header.Get("Allow"), told)
		return // The description has no such operation.
	}
	request := make()
	item := c.model.Paths.Value(path)
	route := &routers.Route{
		Spec: c.model, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method),
	}
	in := &openapi3filter.RequestValidationInput{
		Request: request, Route: route, QueryParams: query,
		Options: &openapi3filter.Options{SkipSettingDefaults: true, IncludeResponseStatus: true},
	}
	if why := openapi3filter.ValidateRequest(t.Context(), in); why != nil {
		require.GreaterOrEqual(t, answer.StatusCode, 400, "the description forbids it: %s\n%v", told, why)
	}
	require.Less(t, answer.StatusCode, 500, told)
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: answer.StatusCode, Header: answer.Header, Options: in.Options,
	}
	require.NoError(t, openapi3filter.ValidateResponse(t.Context(), out.SetBodyBytes(text)), told)
}
