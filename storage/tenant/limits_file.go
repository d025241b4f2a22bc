package tenant

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/units"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/cassia-db/cassia/storage/bounds"
)

// errBadLimits means that a limits file is invalid. The error that wraps it has the reason.
var errBadLimits = errors.New("invalid limits")

// MaxLimitsFile is the max size of a limits file in bytes.
const MaxLimitsFile = 4 << 20

// ParseLimits parses a limits file:
//
//	defaults:
//	  samples_per_second: 50000
//	  request_bytes: 16MiB
//	  query_range: 31d
//	tenants:
//	  team-a: {samples_per_second: 200000}
//
// A tenant without a value for a limit gets the value in defaults. 0 means no limit. Unknown and duplicate keys are
// errors that contain the line. All errors wrap errBadLimits.
func ParseLimits(text []byte) (*Table, error) {
	var doc yaml.Node
	if len(text) > MaxLimitsFile {
		return nil, fmt.Errorf("%w: the file has %d bytes; the maximum is %d", errBadLimits, len(text), MaxLimitsFile)
	}
	if err := bounds.DecodeYAML(text, MaxLimitsFile, &doc); err != nil {
		return nil, fmt.Errorf("%w: %s", errBadLimits, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	t := NewTable(Limits{}, nil)
	if doc.Kind == 0 {
		return t, nil // The file is empty.
	}
	var tenants *yaml.Node
	err := eachKey(doc.Content[0], func(name string, at, value *yaml.Node) (err error) {
		switch name {
		case "defaults":
			t.defaults, err = parseSet(value, Limits{})
		case "tenants":
			tenants = value
		default:
			err = fmt.Errorf("line %d: unknown key %q; the keys are defaults and tenants", at.Line, name)
		}
		return err
	})
	if err == nil && tenants != nil {
		t.tenants = map[string]Limits{}
		err = eachKey(tenants, func(name string, at, value *yaml.Node) error {
			if err := CheckName(name); err != nil {
				return fmt.Errorf("line %d: %w", at.Line, err)
			}
			own, err := parseSet(value, t.defaults)
			t.tenants[name] = own
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadLimits, err)
	}
	return t, nil
}

// eachKey calls f for the entries of a mapping. A null value is treated as an empty mapping.
func eachKey(n *yaml.Node, f func(name string, at, value *yaml.Node) error) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: must be a mapping of keys to values", n.Line)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		at, value := n.Content[i], n.Content[i+1]
		if at.Kind != yaml.ScalarNode || value.Kind == yaml.AliasNode {
			return fmt.Errorf("line %d: aliases and keys that aren't strings are not supported", at.Line)
		}
		if line, twice := seen[at.Value]; twice {
			return fmt.Errorf("line %d: %q is already set in line %d", at.Line, at.Value, line)
		}
		seen[at.Value] = at.Line
		if err := f(at.Value, at, value); err != nil {
			return err
		}
	}
	return nil
}

// parseSet parses limits. A limit that isn't set in n keeps its value in over.
func parseSet(n *yaml.Node, over Limits) (Limits, error) {
	err := eachKey(n, func(name string, at, value *yaml.Node) error {
		for i := range keys {
			if keys[i].name != name {
				continue
			}
			v, err := keys[i].parse(value)
			if err != nil {
				return fmt.Errorf("line %d: %s: %w", value.Line, name, err)
			}
			*keys[i].at(&over) = v
			return nil
		}
		return fmt.Errorf("line %d: unknown key %q%s", at.Line, name, fileHint(name))
	})
	if most := over.LabelValueBytes; err == nil && over.LongLabelValues == TruncateLongLabelValues && most > 0 &&
		most < MinTruncatedBytes {
		err = fmt.Errorf(
			"line %d: %s: must be at least %d with %s: truncate, because a truncated value contains a hash", n.Line,
			KeyLabelValueBytes, MinTruncatedBytes, keyLongLabelValues,
		)
	}
	return over, err
}

// fileHint returns a hint for the error message if a key belongs in a different file, otherwise "".
func fileHint(name string) string {
	if strings.Contains(name, "retention") {
		return ": retention is configured in --retention.file"
	}
	return ""
}

func (k *key) parse(n *yaml.Node) (v int64, err error) {
	if n.Kind != yaml.ScalarNode {
		return 0, errors.New("must be a single value")
	}
	switch k.unit {
	case unitWord:
		at := slices.Index(longLabelValues, n.Value)
		if at < 0 {
			return 0, fmt.Errorf("%q must be one of %s", n.Value, strings.Join(longLabelValues, ", "))
		}
		return int64(at) + int64(RejectLongLabelValues), nil
	case unitDuration:
		d, err := model.ParseDuration(n.Value)
		if err != nil {
			return 0, fmt.Errorf("%q must be a duration such as 31d, or 0 for no limit", n.Value)
		}
		return int64(time.Duration(d)), nil
	case unitBytes:
		v, err = strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			var b units.Base2Bytes
			b, err = units.ParseBase2Bytes(n.Value)
			v = int64(b)
		}
		if err != nil || v < 0 || v > maxLimit {
			return 0, fmt.Errorf("%q must be a number of bytes such as 16MiB, or 0 for no limit", n.Value)
		}
		return v, nil
	default:
		most := int64(maxLimit)
		if k.most > 0 {
			most = k.most
		}
		number, err := strconv.ParseFloat(n.Value, 64) // Accept numbers such as 1e6.
		if err != nil || number < 0 || number > float64(most) || number != math.Trunc(number) {
			return 0, fmt.Errorf("%q must be a whole number of at most %d, or 0 for no limit", n.Value, most)
		}
		return int64(number), nil
	}
}
