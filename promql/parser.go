package promql

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"

	"github.com/cassia-db/cassia/storage/bounds"
)

// Bounds of a query's text. Whoever walks through a parsed query calls itself for every level of it, and a stack that
// is used up ends the process: no level may be made that isn't counted before.
const (
	// maxQueryLen bounds a query or a selector, bytes.
	maxQueryLen = 1 << 20
	// maxDepth bounds how deep expressions stand in one another; a + b + c has two levels. Laying out a query that is
	// twice as deep takes ten times as long: a second for this one.
	maxDepth = 500
	// maxParts bounds the operators, parentheses and brackets of a query, and with them its expressions. A query of 500 KB that is all
	// operators takes gigabytes when it is written as JSON, which copies each expression at every level above it.
	maxParts = 10_000
	// maxMatchers bounds the matchers of one selector, maxSelectors the selectors of one request.
	maxMatchers  = 1000
	maxSelectors = 1000
	// maxListed bounds a list in parentheses: of labels, which are looked up in each series, or of arguments.
	maxListed = 1000
	// maxReplaceSteps bounds bounds.Steps of the regular expression of a label_replace.
	maxReplaceSteps = 500
)

// ErrQueryTooComplex means that a query is too long or too deep to be looked at.
var ErrQueryTooComplex = errors.New("promql: query too complex")

// NewParser returns Prometheus' parser behind bounds on what it is given. Its errors at a bound wrap
// ErrQueryTooComplex.
func NewParser(o parser.Options) parser.Parser { return boundedParser{parser.NewParser(o)} }

type boundedParser struct{ parser.Parser }

// ParseExpr implements parser.Parser.
func (p boundedParser) ParseExpr(input string) (parser.Expr, error) {
	if err := checkTexts(input); err != nil {
		return nil, err
	}
	expr, err := p.Parser.ParseExpr(input)
	if err != nil {
		return expr, err
	}
	eachCall(expr, func(call *parser.Call) {
		if err == nil {
			err = checkReplace(call)
		}
	})
	if err != nil {
		return nil, err
	}
	return expr, nil
}

// checkReplace bounds the regular expression of a label_replace, which the evaluator matches with all series without a look at the context.
func checkReplace(call *parser.Call) error {
	if call.Func.Name != "label_replace" || len(call.Args) < 5 {
		return nil
	}
	arg := call.Args[4]
	for paren, ok := arg.(*parser.ParenExpr); ok; paren, ok = arg.(*parser.ParenExpr) {
		arg = paren.Expr
	}
	if text, ok := arg.(*parser.StringLiteral); ok {
		if n := bounds.Steps(text.Val); n > maxReplaceSteps {
			return fmt.Errorf("%w: a match of label_replace's regular expression would take %d steps for each character of a value; the maximum is %d. Use fewer wildcards and repetitions (.*, +, ?)",
				ErrQueryTooComplex, n, maxReplaceSteps)
		}
	}
	return nil
}

// ParseMetricSelector implements parser.Parser.
func (p boundedParser) ParseMetricSelector(input string) ([]*labels.Matcher, error) {
	if err := checkTexts(input); err != nil {
		return nil, err
	}
	return p.Parser.ParseMetricSelector(input)
}

// ParseMetricSelectors implements parser.Parser.
func (p boundedParser) ParseMetricSelectors(inputs []string) ([][]*labels.Matcher, error) {
	if len(inputs) > maxSelectors {
		return nil, fmt.Errorf("%w: %d selectors; the maximum is %d", ErrQueryTooComplex, len(inputs), maxSelectors)
	}
	total := 0
	for _, input := range inputs {
		if total += len(input); total > maxQueryLen {
			return nil, fmt.Errorf("%w: the selectors have more than %d bytes", ErrQueryTooComplex, maxQueryLen)
		}
	}
	if err := checkTexts(inputs...); err != nil {
		return nil, err
	}
	return p.Parser.ParseMetricSelectors(inputs)
}

// level is what stands in one pair of parentheses or brackets: so many operators and commas, and in it another level.
type level struct{ operators, inner, commas int }

// checkTexts looks at the queries of a request before they are parsed.
func checkTexts(inputs ...string) error {
	var all []string
	for _, input := range inputs {
		texts, err := checkText(input)
		if err != nil {
			return err
		}
		all = append(all, texts...)
	}
	if err := bounds.CheckRegexps(all...); err != nil {
		return fmt.Errorf("%w: %w", ErrQueryTooComplex, err)
	}
	return nil
}

// checkText looks at the words of a query, and returns its strings: each may be a regular expression. What isn't a query at all it leaves to
// the parser.
func checkText(input string) (texts []string, err error) {
	if len(input) > maxQueryLen {
		return nil, fmt.Errorf("%w: %d bytes; the maximum is %d", ErrQueryTooComplex, len(input), maxQueryLen)
	}
	levels := []level{{}}
	matchers, parts, inBraces := 0, 0, false
	words := parser.Lex(input)
	for {
		var word parser.Item
		words.NextItem(&word)
		here := &levels[len(levels)-1]
		switch word.Typ {
		case parser.EOF, parser.ERROR:
			return texts, nil
		case parser.STRING:
			if text, err := strutil.Unquote(word.Val); err == nil {
				texts = append(texts, text)
			}
		case parser.LEFT_PAREN, parser.LEFT_BRACKET:
			levels = append(levels, level{})
			parts++
		case parser.RIGHT_PAREN, parser.RIGHT_BRACKET:
			if inner := here.operators + here.inner + 1; len(levels) > 1 {
				levels = levels[:len(levels)-1]
				here = &levels[len(levels)-1]
				here.inner = max(here.inner, inner)
				if word.Typ == parser.RIGHT_BRACKET { // What stands in brackets comes on top of what stands before.
					here.operators++
				}
			}
		case parser.LEFT_BRACE:
			matchers, inBraces = 0, true
		case parser.RIGHT_BRACE:
			inBraces = false
		case parser.COMMA:
			if matchers++; inBraces && matchers > maxMatchers {
				return nil, fmt.Errorf("%w: a selector has more than %d matchers", ErrQueryTooComplex, maxMatchers)
			}
			if !inBraces {
				here.commas++
			}
			if here.commas >= maxListed {
				return nil, fmt.Errorf("%w: a list has more than %d labels or arguments", ErrQueryTooComplex, maxListed)
			}
		default:
			if word.Typ.IsOperator() && !inBraces {
				here.operators++
				parts++
			}
		}
		if parts > maxParts {
			return nil, fmt.Errorf("%w: it has more than %d operators and parentheses", ErrQueryTooComplex, maxParts)
		}
		if here.operators+here.inner+len(levels) > maxDepth {
			return nil, fmt.Errorf("%w: nested more than %d levels deep", ErrQueryTooComplex, maxDepth)
		}
	}
}
