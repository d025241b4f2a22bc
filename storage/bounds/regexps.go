package bounds

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
)

// Bounds of regular expressions. Ordinary ones take less than regexpPerByte for each of their bytes; regexpAllowed is what those of a
// text may take beyond that, together: some 6,000 instructions.
const (
	regexpPerByte = 64
	regexpAllowed = 256 << 10
)

// Bytes that a compiled regular expression takes.
const (
	instructionBytes = 40
	runeBytes        = 4
)

// ErrRegexps means that regular expressions would take much more memory than their texts.
var ErrRegexps = errors.New("bounds: regular expressions too large")

// CheckRegexps returns an error that wraps ErrRegexps if the regular expressions of a text would together take much more memory, once they
// are compiled, than their length. Texts that are no regular expressions are left to the compiler.
func CheckRegexps(texts ...string) error {
	took, may := 0, regexpAllowed
	for _, text := range texts {
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
