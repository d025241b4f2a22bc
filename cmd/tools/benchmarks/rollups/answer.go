package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// answer is a matrix. The keys are the labels of the series, as JSON with sorted names.
type answer map[string]series

type series struct {
	at     []float64 // seconds since 1970
	values []float64
}

var errAnswer = errors.New("rollups: not an answer to a range query")

// point is a point of a series, in JSON [seconds, "value"].
type point struct{ at, value float64 }

// UnmarshalJSON implements json.Unmarshaler.
func (p *point) UnmarshalJSON(text []byte) error {
	var value string
	if err := json.Unmarshal(text, &[]any{&p.at, &value}); err != nil {
		return err
	}
	var err error
	p.value, err = strconv.ParseFloat(value, 64)
	return err
}

// parseAnswer parses the JSON response to a range query.
func parseAnswer(body []byte) (answer, error) {
	var envelope struct {
		Status string `json:"status"`
		Data   struct {
			ResultType string `json:"resultType"`
			Result     []struct {
				Metric map[string]string `json:"metric"`
				Values []point           `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if envelope.Status != "success" || envelope.Data.ResultType != "matrix" {
		return nil, fmt.Errorf("%w: %.200s", errAnswer, body)
	}
	out := answer{}
	for _, r := range envelope.Data.Result {
		name, err := json.Marshal(r.Metric)
		if err != nil {
			return nil, err
		}
		var s series
		for _, p := range r.Values {
			s.at, s.values = append(s.at, p.at), append(s.values, p.value)
		}
		out[string(name)] = s
	}
	return out, nil
}

func (a answer) points() (n int) {
	for _, s := range a {
		n += len(s.at)
	}
	return n
}

// difference describes how a result differs from the expected one.
type difference struct {
	// shape names a missing or additional series or point, or is empty.
	shape string
	// relative is the max difference between two values relative to the larger one, and usual is the 99th percentile.
	relative, usual float64
}

func differenceOf(want, got answer) difference {
	if want.points() == 0 {
		return difference{shape: "there is nothing to compare"}
	}
	var all []float64
	for name, w := range want {
		g, ok := got[name]
		switch {
		case !ok:
			return difference{shape: "no series " + name}
		case len(w.at) != len(g.at):
			return difference{shape: fmt.Sprintf("%d points, not %d, of %s", len(g.at), len(w.at), name)}
		}
		for i, v := range w.values {
			if w.at[i] != g.at[i] {
				return difference{shape: fmt.Sprintf("a point at %f, not at %f, of %s", g.at[i], w.at[i], name)}
			}
			all = append(all, relative(v, g.values[i]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			return difference{shape: "a series too many: " + name}
		}
	}
	slices.Sort(all)
	return difference{relative: all[len(all)-1], usual: all[(len(all)-1)*99/100]}
}

// relative returns the difference between two values relative to the larger one. It is infinite if only one of them is
// finite.
func relative(a, b float64) float64 {
	switch {
	case a == b || math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a) || math.IsNaN(b) || math.IsInf(a, 0) || math.IsInf(b, 0):
		return math.Inf(1)
	default:
		return math.Abs(a-b) / max(math.Abs(a), math.Abs(b))
	}
}
