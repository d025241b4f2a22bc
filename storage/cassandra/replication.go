package cassandra

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// everyDataCenter is the replication option that applies to all data centers.
const everyDataCenter = "replication_factor"

// maxCopies is the max number of replicas in a data center. A higher number is assumed to be a mistake.
const maxCopies = 100

// replication is the number of replicas per data center; the key everyDataCenter applies to all. nil means that it
// isn't determined yet.
type replication map[string]int

// dataCenterName matches names that can be put between quotes in CQL.
var dataCenterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.\- ]*$`)

// parseReplication parses "3", "dc1:3,dc2:3" or {'class': 'NetworkTopologyStrategy', 'dc1': 3}.
func parseReplication(text string) (replication, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		return replication{everyDataCenter: n}.check(text)
	}
	inner, isMap := strings.CutPrefix(text, "{")
	if isMap {
		var closed bool
		if inner, closed = strings.CutSuffix(inner, "}"); !closed {
			return nil, badReplication(text, "the closing } is missing")
		}
	}
	r, class := replication{}, ""
	for part := range strings.SplitSeq(inner, ",") {
		name, value, ok := strings.Cut(part, ":")
		name, value = unquote(name), unquote(value)
		if !ok {
			return nil, badReplication(text, fmt.Sprintf("%q is not a pair of a data center and a number", part))
		}
		if isMap && name == "class" {
			class = value
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, badReplication(text, fmt.Sprintf("%q is not a number of copies", value))
		}
		if _, twice := r[name]; twice {
			return nil, badReplication(text, fmt.Sprintf("%s is set twice", name))
		}
		r[name] = n
	}
	if class = class[strings.LastIndexByte(class, '.')+1:]; isMap && class != "NetworkTopologyStrategy" {
		return nil, badReplication(text, fmt.Sprintf("the class must be NetworkTopologyStrategy, not %q", class))
	}
	return r.check(text)
}

func (r replication) check(text string) (replication, error) {
	if len(r) == 0 {
		return nil, badReplication(text, "the data center is missing")
	}
	for name, n := range r {
		if !dataCenterName.MatchString(name) {
			return nil, badReplication(text, fmt.Sprintf("%q is not a valid data center name", name))
		}
		if n < 1 || n > maxCopies {
			return nil, badReplication(text, fmt.Sprintf("%d copies; must be 1 to %d", n, maxCopies))
		}
	}
	return r, nil
}

func badReplication(text, why string) error {
	return fmt.Errorf(
		"cassandra: replication %q: %s; write 3, or dc1:3,dc2:3, or {'class': 'NetworkTopologyStrategy', 'dc1': 3}",
		text, why,
	)
}

func unquote(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// String returns the replication as CQL.
func (r replication) String() string {
	var b strings.Builder
	b.WriteString("{'class': 'NetworkTopologyStrategy'")
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(&b, ", '%s': %d", name, r[name])
	}
	return b.String() + "}"
}

// countIn returns the number of replicas in a data center.
func (r replication) countIn(dc string) int {
	if n, ok := r[dc]; ok {
		return n
	}
	return r[everyDataCenter]
}

// quorum returns the min number of n replicas that is more than half.
func quorum(n int) int { return n/2 + 1 }
