package bounds

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRegexpSize checks that the estimated size of a program is close to the compiler's.
func TestRegexpSize(t *testing.T) {
	for _, text := range []string{
		"{}", "abc{1}", "(abc){1000}", "(a|b|c){10,20}", "x{0,1000}", "x{5,}", "((a{10}){10}){10}", "(?i)abc[def]*",
		`\pL+\PN?`, "([a-z]{3}|[0-9]{2,4}){50}", "(?:){1000}",
	} {
		parsed, err := syntax.Parse(text, syntax.Perl)
		require.NoError(t, err, text)
		estimated, _ := programSize(parsed)
		program, err := syntax.Compile(parsed.Simplify())
		require.NoError(t, err, text)
		require.InDelta(t, len(program.Inst), estimated, 10+float64(len(program.Inst))/3, text)
	}
}

func TestCheckRegexps(t *testing.T) {
	uuid := "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
	words := strings.Repeat(`host-1\.example\.com|`, 50_000)
	for _, texts := range [][]string{
		nil, {uuid}, {words}, {words + uuid}, {`\p{Lu}\pL*`}, {"(a", "x{2000}", "["},
		{"x{1000}", "[a-z]{1000}", ".{1,1000}"}, {strings.Repeat(uuid+"|", 10_000)},
		{strings.Repeat("(?i)abc", 10_000)}, {strings.Repeat(".*", 45_000)}, {names(10_000, `pod-%d\.example\.com`)},
		{names(10_000, `.*pod-%d.*`)},
		{names(10_000, `pod-%d`) + strings.Repeat("|.*x", 1000)},
	} {
		require.NoError(t, CheckRegexps(texts...), "%.100v", texts)
	}
	for _, texts := range [][]string{
		{"(" + strings.Repeat("ab", 500) + "){1000}"}, {"((((a|b){10}){10}){10}|" + strings.Repeat("x{1000}", 10)},
		{strings.Repeat(`\pL`, 300)}, {"x{1000}", "y{1000}", "z{1000}", "x{1000}", "y{1000}", "z{1000}", "x{1000}"},
	} {
		if _, err := regexp.Compile(texts[0]); err != nil {
			continue
		}
		err := CheckRegexps(texts...)
		require.ErrorIs(t, err, errRegexps, "%.100v", texts)
		require.ErrorContains(t, err, "bytes of memory")
	}
}

// names returns an alternation of n names.
func names(n int, format string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(list, "|")
}

func TestSteps(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "abc": 0, "a|b": 0, `a\.b|c\+`: 0, "a{3}": 0, "(": 0, ".*": 2, ".*.*": 4, "abc.+": 3, "(a|b)?": 3,
		"(.*){10}": 40, "[a-z]{2,5}": 10,
	} {
		require.Equal(t, want, Steps(text), text)
	}
	for _, text := range []string{
		strings.Repeat(".*", 60_000), strings.Repeat("a?", 200_000), names(30_000, `.*pod-%d.*`),
	} {
		err := CheckRegexps("x", text)
		require.ErrorIs(t, err, errRegexps)
		require.ErrorContains(t, err, "steps for each character")
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string][2]int{
		"": {1, 1}, "(": {}, "abc": {3, 1}, "a|b": {1, 1}, "(abc){10}": {50, 30}, ".*": {3, 2}, "(.*){10}": {50, 40},
	} {
		instructions, each := Size(text)
		require.Equal(t, want, [2]int{instructions, each}, text)
	}
}

// bomb returns a YAML text with anchors that each contain the previous one ten times.
func bomb(levels int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 word\n")
	for i := range levels {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
	}
	return b.String()
}

func TestCheckYAML(t *testing.T) {
	for _, text := range []string{
		"", "a: b", "[]", bomb(3), "{a: &a {x: 1}, b: {<<: *a, y: 2}}", strings.Repeat("- [a, b]\n", 10_000),
	} {
		require.NoError(t, checkYAML([]byte(text), 1<<16), "%.100s", text)
	}
	for text, told := range map[string]string{
		bomb(5):                  "without aliases the text would have more than 65536 bytes",
		bomb(50):                 "without aliases",
		"a: &a [*a]":             "contains itself",
		"a: &a {b: &b [*a, *b]}": "contains itself",
		"- &a " + strings.Repeat("x", 1000) + strings.Repeat("\n- *a", 70): "without aliases",
	} {
		err := checkYAML([]byte(text), 1<<16)
		require.ErrorIs(t, err, errAliases, "%.100s", text)
		require.ErrorContains(t, err, told)
	}
	err := checkYAML([]byte("a: ["), 10)
	require.Error(t, err)
	require.NotErrorIs(t, err, errAliases)
}

func TestEachScalar(t *testing.T) {
	var found []string
	require.NoError(t, EachScalar(
		[]byte("rules: [&a {x: 1, y: [2, 3]}, *a]\nz: {w: 4}\n---\n5"), 1<<10,
		func(keys []string, value string) error {
			found = append(found, strings.Join(keys, "/")+"="+value)
			return nil
		},
	))
	require.Equal(
		t, []string{"rules/x=1", "rules/y=2", "rules/y=3", "rules/x=1", "rules/y=2", "rules/y=3", "z/w=4", "=5"}, found,
	)
}
