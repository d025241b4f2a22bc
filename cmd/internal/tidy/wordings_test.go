package tidy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/tidy/wordings"
)

// maxWordings is the max number of stilted wordings per 1,000 words, by kind of text. The numbers may only be reduced.
var maxWordings = map[wordings.TextKind]float64{
	wordings.Page:      0,
	wordings.Help:      0.1,
	wordings.Messages:  0,
	wordings.Manual:    0.1,
	wordings.Readme:    0,
	wordings.Changelog: 0,
	wordings.Examples:  0,
	wordings.Design:    2,
}

// minWords is the min number of words by kind of text. If there are fewer, the texts have probably moved to files in
// which they aren't counted.
var minWords = map[wordings.TextKind]int{
	wordings.Page: 1000, wordings.Help: 2000, wordings.Messages: 5000, wordings.Manual: 8000, wordings.Readme: 200,
	wordings.Changelog: 50, wordings.Examples: 500, wordings.Design: 8000,
}

// maxPageWords is the max number of words of a design page, which take five minutes to read. maxDesignWords is the max
// number of words of all design pages together, which take an hour.
const maxPageWords, maxDesignWords = 900, 15_000

// TestDesignPagesAreShort checks the lengths of the design pages. It counts words as wc does.
func TestDesignPagesAreShort(t *testing.T) {
	t.Parallel()
	pages, all := 0, 0
	walkFiles(t, func(rel string, content []byte) {
		if !wordings.IsDesignPage(rel) {
			return
		}
		words := len(bytes.Fields(content))
		pages, all = pages+1, all+words
		if words > maxPageWords {
			t.Errorf(
				"%s has %d words, at most %d are allowed: cut what git or the code says, or divide the page by its ideas",
				rel, words, maxPageWords,
			)
		}
	})
	require.Greater(t, pages, 12, "too few design pages were found")
	if all > maxDesignWords {
		t.Errorf("the design pages have %d words, at most %d are allowed: cut what git or the code says",
			all, maxDesignWords)
	}
}

// TestTextsArePlain checks the texts for users against maxWordings.
func TestTextsArePlain(t *testing.T) {
	t.Parallel()
	texts, err := wordings.Collect(root)
	require.NoError(t, err)
	hits := wordings.FindHits(texts)
	totals := wordings.CountTotals(texts, hits)
	for _, kind := range wordings.Kinds {
		total := totals[kind]
		t.Logf("%-10s %6d words, %4d wordings, %5.1f per 1,000", kind, total.Words, total.Hits, total.PerThousand())
		require.GreaterOrEqual(t, total.Words, minWords[kind], "%s: too few words were found", kind)
		if total.PerThousand() <= maxWordings[kind] {
			continue
		}
		var list strings.Builder
		for _, h := range hits {
			if h.Kind == kind {
				fmt.Fprintf(&list, "%s:%d: %s (%s)\n", h.File, h.Line, h.Found, h.Advice)
			}
		}
		t.Errorf("%s: %.1f stilted wordings per 1,000 words, at most %.1f are allowed: reword some of these\n%s",
			kind, total.PerThousand(), maxWordings[kind], list.String())
	}
}
