package bounds

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
)

// Limits of regular expressions. A typical regular expression takes less than regexpPerByte bytes of memory per byte of
// text. regexpAllowed is the additional memory that all regular expressions of a text may take together: about 6,000
// instructions.
const (
	regexpPerByte = 64
	regexpAllowed = 256 << 10
)

// maxSteps is the max result of Steps for a regular expression. At this limit, matching a value of 30 characters takes
// about 50 milliseconds.
const maxSteps = 100_000

// Memory of a compiled regular expression in bytes.
const (
	instructionBytes = 40
	runeBytes        = 4
)

// errRegexps means that regular expressions would take much more memory than their texts, or that matching would take
// too long.
var errRegexps = errors.New("bounds: regular expressions too large")

// CheckRegexps returns an error that wraps errRegexps if the compiled regular expressions of a text would take much
// more memory in total than their length, or if Steps returns more than maxSteps for one of them. It ignores invalid
// regular expressions, which the compiler rejects.
func CheckRegexps(texts ...string) error {
	took, may := 0, regexpAllowed
	for _, text := range texts {
		if len(text) > maxSteps/2 { // Shorter ones have fewer steps, within the limit of memory.
			if n := Steps(text); n > maxSteps {
				return fmt.Errorf(
					"%w: a match would take %d steps for each character of a value; the maximum is %d. Use fewer "+
						"wildcards and repetitions (.*, +, ?)",
					errRegexps, n, maxSteps,
				)
			}
		}
		took += regexpSize(text)
		may += regexpPerByte * len(text)
	}
	if took > may {
		return fmt.Errorf(
			"%w: compiled, they would need %d bytes of memory; the maximum is %d. Use fewer repetitions ({…}) and "+
				"Unicode classes (\\p)",
			errRegexps, took, may,
		)
	}
	return nil
}

// regexpSize returns the approximate size in bytes of a compiled regular expression.
func regexpSize(text string) int {
	if !strings.ContainsRune(text, '{') && !strings.Contains(text, `\p`) && !strings.Contains(text, `\P`) &&
		!strings.Contains(text, "(?") {
		return 0 // All others are small, and alternations of many words would take long to parse.
	}
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil {
		return 0
	}
	instructions, runes := programSize(parsed)
	return instructions*instructionBytes + runes*runeBytes
}

// Steps returns the approximate max number of steps of a match per character of a value. It returns 0 if the regular
// expression has no repetition, such as a list of words: the number of steps is then at most the length of text,
// regardless of the value.
func Steps(text string) int {
	if !strings.ContainsAny(text, "*+?{") {
		return 0
	}
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil || !hasRepeat(parsed) {
		return 0
	}
	return steps(parsed)
}

// Size returns the approximate number of instructions in the program of a regular expression, and the approximate
// number of these instructions that a search may execute per character of a text. Both are 0 if text is invalid.
func Size(text string) (instructions, each int) {
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil {
		return 0, 0
	}
	instructions, _ = programSize(parsed)
	return instructions, steps(parsed)
}

// hasRepeat reports whether a part may match texts of different lengths because of a repetition.
func hasRepeat(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		return true
	case syntax.OpRepeat:
		return re.Min != re.Max || hasRepeat(re.Sub[0])
	}
	return slices.ContainsFunc(re.Sub, hasRepeat)
}

// steps returns the number of instructions of a program. A literal text counts as one instruction, because a search
// executes few of its instructions per character of a text.
func steps(re *syntax.Regexp) (n int) {
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	switch re.Op {
	case syntax.OpConcat:
		return n
	case syntax.OpRepeat:
		return (n + 1) * max(1, re.Min, re.Max)
	case syntax.OpAlternate:
		return n + len(re.Sub) - 1
	default:
		return n + 1
	}
}

// programSize returns the number of instructions of a program, and the number of range bounds in its character classes.
// The copies of a repeated character class share their range bounds.
func programSize(re *syntax.Regexp) (instructions, runes int) {
	for _, sub := range re.Sub {
		i, r := programSize(sub)
		instructions += i
		runes += r
	}
	switch re.Op {
	case syntax.OpLiteral:
		instructions = len(re.Rune)
	case syntax.OpCharClass:
		runes = len(re.Rune)
	case syntax.OpCapture, syntax.OpStar:
		instructions += 2
	case syntax.OpPlus, syntax.OpQuest:
		instructions++
	case syntax.OpAlternate:
		instructions += len(re.Sub) - 1
	case syntax.OpRepeat:
		if re.Max < 0 {
			instructions = instructions*max(1, re.Min) + 2
		} else {
			instructions = instructions*re.Max + re.Max - re.Min
		}
	}
	return max(1, instructions), runes
}
