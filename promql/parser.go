package promql

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"

	"github.com/cassia-db/cassia/storage/bounds"
)

// These constants bound the text of a query. Code that visits a parsed query recurses once per level, and a stack
// overflow ends the process. So the levels are counted before the text is parsed.
const (
	// maxQueryLen is the maximum length of a query or a selector, in bytes.
	maxQueryLen = 1 << 20
	// maxDepth is the maximum nesting of expressions. a + b + c has two levels. Formatting a query of this depth takes
	// one second. At twice the depth, it takes ten seconds.
	maxDepth = 500
	// maxParts is the maximum number of operators, parentheses and brackets of a query, and therefore bounds its
	// expressions. A query of 500 KB that consists of operators takes gigabytes when it is encoded as JSON, which
	// copies each expression at every level above it.
	maxParts = 10_000
	// maxMatchers bounds the matchers of one selector, maxSelectors the selectors of one request.
	maxMatchers  = 1000
	maxSelectors = 1000
	// maxListed bounds a list in parentheses. Labels in it are looked up in each series.
	maxListed = 1000
	// maxReplaceSteps is the maximum of bounds.Steps for the regular expression of a label_replace.
	maxReplaceSteps = 500
)

// ErrQueryTooComplex means that a query exceeds one of the bounds on length and depth.
var ErrQueryTooComplex = errors.New("promql: query too complex")

// NewParser returns Prometheus' parser with bounds on its input. Its errors for exceeded bounds wrap
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

// checkReplace bounds the regular expression of a label_replace. The evaluator matches it with all series without
// checking the context.
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
			return fmt.Errorf(
				"%w: a match of label_replace's regular expression would take %d steps for each character of a value; the maximum is %d. Use fewer wildcards and repetitions (.*, +, ?)",
				ErrQueryTooComplex, n, maxReplaceSteps,
			)
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

// level counts the operators and commas in one pair of parentheses or brackets.
type level struct{ operators, inner, commas int }

// checkTexts checks the queries of a request before they are parsed.
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

// checkText counts the tokens of a query. It returns the string literals of the query, because they may be regular
// expressions. A text that isn't a query is no error here, because the parser reports it.
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
				if word.Typ == parser.RIGHT_BRACKET {
					// An expression in brackets adds to the depth of the expression before it.
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
