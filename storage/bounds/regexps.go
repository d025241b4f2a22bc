package bounds

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
)

// Bounds of regular expressions. Ordinary ones take less than regexpPerByte for each of their bytes; regexpAllowed is what those of a
// text may take beyond that, together: some 6,000 instructions.
const (
	regexpPerByte = 64
	regexpAllowed = 256 << 10
)

// maxSteps bounds Steps of a regular expression. At the bound a match of a value of 30 characters takes some 50 milliseconds.
const maxSteps = 100_000

// Bytes that a compiled regular expression takes.
const (
	instructionBytes = 40
	runeBytes        = 4
)

// ErrRegexps means that regular expressions would take much more memory than their texts, or that matches would take too long.
var ErrRegexps = errors.New("bounds: regular expressions too large")

// CheckRegexps returns an error that wraps ErrRegexps if the regular expressions of a text would together take much more memory, once they
// are compiled, than their length, or if one has too many Steps. Texts that are no regular expressions are left to the compiler.
func CheckRegexps(texts ...string) error {
	took, may := 0, regexpAllowed
	for _, text := range texts {
		if len(text) > maxSteps/2 { // Others have fewer, within the bound of memory.
			if n := Steps(text); n > maxSteps {
				return fmt.Errorf("%w: a match would take %d steps for each character of a value; the maximum is %d. Use fewer wildcards and repetitions (.*, +, ?)",
					ErrRegexps, n, maxSteps)
			}
		}
		took += regexpSize(text)
		may += regexpPerByte * len(text)
	}
	if took > may {
		return fmt.Errorf("%w: compiled, they would need %d bytes of memory; the maximum is %d. Use fewer repetitions ({…}) and Unicode classes (\\p)",
			ErrRegexps, took, may)
	}
	return nil
}

// regexpSize returns about how many bytes a regular expression takes.
func regexpSize(text string) int {
	if !strings.ContainsRune(text, '{') && !strings.Contains(text, `\p`) && !strings.Contains(text, `\P`) && !strings.Contains(text, "(?") {
		return 0 // All others are small, and alternations of many words would take long to parse.
	}
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil {
		return 0
	}
	instructions, runes := programSize(parsed)
	return instructions*instructionBytes + runes*runeBytes
}

// Steps returns about how many steps a match may take for each character of a value. It is 0 where the regular expression repeats nothing, as
// a list of words: then a match takes no more steps than the text has characters, however long the value is.
func Steps(text string) int {
	if !strings.ContainsAny(text, "*+?{") {
		return 0
	}
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil || !repeats(parsed) {
		return 0
	}
	return steps(parsed)
}

// Size returns about how many instructions the program of a regular expression has, and about how many of them a search may execute for each
// character of a text. Both are 0 if text is no regular expression.
func Size(text string) (instructions, each int) {
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil {
		return 0, 0
	}
	instructions, _ = programSize(parsed)
	return instructions, steps(parsed)
}

// repeats reports whether a part may match texts of different lengths because it is repeated.
func repeats(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		return true
	case syntax.OpRepeat:
		return re.Min != re.Max || repeats(re.Sub[0])
	}
	return slices.ContainsFunc(re.Sub, repeats)
}

// steps counts the instructions of a program, of which literal texts are one each: a match is at few of their characters at once.
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

// programSize counts the instructions of a program, and the bounds of its classes of characters, which repetitions share.
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
