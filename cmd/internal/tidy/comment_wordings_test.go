package tidy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/tidy/wordings"
)

// maxCommentWordings is the max number of stilted wordings per 1,000 words in the comments of a folder's Go files.
const maxCommentWordings = 2

// commentWordings contains higher limits for folders whose comments haven't been rewritten yet. A limit may only be
// reduced. A folder that reaches maxCommentWordings must be removed.
var commentWordings = map[string]float64{
	"storage":       7.0,
	"storage/paged": 10.5,
}

// TestCommentsArePlain checks the comments of each folder against its limit. Even a folder with few words may have one
// stilted wording.
func TestCommentsArePlain(t *testing.T) {
	t.Parallel()
	texts, err := wordings.CollectComments(root)
	require.NoError(t, err)
	folders := wordings.ByFolder(texts)
	require.Greater(t, len(folders), 30, "too few folders with comments were found")
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		hits := wordings.FindHits(folders[folder])
		count := wordings.CountTotals(folders[folder], hits)[wordings.Comments].PerThousand()
		bound, isPending := commentWordings[folder]
		isPlain := count <= maxCommentWordings || len(hits) <= 1
		switch {
		case isPlain && isPending:
			t.Errorf("%s: comments are plain now, remove the folder from commentWordings", folder)
		case isPlain || count <= bound:
		default:
			var list strings.Builder
			for _, h := range hits {
				fmt.Fprintf(&list, "%s:%d: %s (%s)\n", h.File, h.Line, h.Found, h.Advice)
			}
			t.Errorf(
				"%s: %.1f stilted wordings per 1,000 words of comments, at most %.1f are allowed: reword some of these\n%s",
				folder, count, max(bound, maxCommentWordings), list.String(),
			)
		}
	}
	for folder := range commentWordings {
		require.Contains(t, folders, folder, "commentWordings names a folder without comments: remove it")
	}
}
