package alerttext

import (
	"context"
	"fmt"
	"reflect"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

// maxWork is the maximum work of the templates of all alerts of a rule in one evaluation, in units of about 5 ns, which
// is less than a second in total. Prometheus then expands the same templates again, without a way to interrupt it.
const maxWork = 128 << 20

// Work of the parts of an expansion, in the same unit.
const (
	// nodeWork is the work of executing a template node. It is also counted as the size of a value that isn't a text.
	nodeWork = 32
	// callWork is the work of calling a function, in addition to the work of its arguments and its result.
	callWork = 12 * nodeWork
	// madeWork is the work per byte of a text that is created or shown.
	madeWork = 4
	// compileWork is the work of compiling a regular expression, per byte and per instruction. matchWork is the work of
	// matching a regular expression, per instruction and byte of the searched text.
	compileWork = 64
	matchWork   = 4
)

// WorkCounter counts the work of the expansions of a rule in one evaluation.
type WorkCounter struct{ spent int }

// add adds n units of work, and reports whether the total is at most maxWork.
func (w *WorkCounter) add(n int) bool {
	w.spent = min(w.spent+n, Unbounded)
	return w.spent <= maxWork
}

// boundedSize returns an upper estimate of the size of a value as text, in bytes, and reports whether the size is at
// most the number most. A value that is contained more than once, such as a map in multiple maps, counts each time,
// because it is printed each time. It stops as soon as the size exceeds most.
func boundedSize(v any, most int) (size int, ok bool) {
	left := most
	switch v := v.(type) {
	case string:
		left -= len(v)
	case map[string]any:
		left = subtractMapSize(v, left)
	default:
		left = subtractSize(reflect.ValueOf(v), left, true)
	}
	return most - left, left >= 0
}

// subtractMapSize returns left minus the size of a map. If the map is larger than left, it stops early and returns a
// negative number.
func subtractMapSize(m map[string]any, left int) int {
	for name, inner := range m {
		if left -= nodeWork + len(name); left < 0 {
			return left
		}
		size, _ := boundedSize(inner, left)
		left -= size
	}
	return left - nodeWork
}

// stringerType is the type of values with a String method, such as native histograms.
var stringerType = reflect.TypeFor[fmt.Stringer]()

// subtractSize is subtractMapSize for all values. It follows pointers where fmt follows them: at the top level, and if
// their values have a String method.
func subtractSize(v reflect.Value, left int, top bool) int {
	if left < 0 {
		return left
	}
	left -= 2 * nodeWork
	switch v.Kind() {
	case reflect.String:
		return left - v.Len()
	case reflect.Interface:
		return subtractSize(v.Elem(), left, false)
	case reflect.Pointer:
		if !v.IsNil() && (top || v.Type().Implements(stringerType)) {
			return subtractSize(v.Elem(), left, false)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && left >= 0; i++ {
			left = subtractSize(v.Field(i), left, false)
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && left >= 0; i++ {
			left = subtractSize(v.Index(i), left, false)
		}
	case reflect.Map:
		for each := v.MapRange(); left >= 0 && each.Next(); {
			left = subtractSize(each.Value(), subtractSize(each.Key(), left, false), false)
		}
	}
	return left
}

// CountQuery wraps find so that the labels in its results are counted as work, and its results are charged. A template
// copies the labels, even if the result was cached.
func (e *Expansion) CountQuery(find template.QueryFunc) template.QueryFunc {
	return func(ctx context.Context, q string, at time.Time) (promengine.Vector, error) {
		found, err := find(ctx, q, at)
		if err != nil {
			return nil, err
		}
		cost := nodeWork
		for i := range found {
			cost += 2*nodeWork + found[i].Metric.Len()*nodeWork/2
		}
		if err := e.addWork(cost); err != nil {
			return nil, err
		}
		if e.charge != nil {
			if err := e.charge(found); err != nil {
				e.refused = err
				return nil, err
			}
		}
		return found, nil
	}
}
