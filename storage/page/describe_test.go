package page

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	labels := strings.Repeat("\x5f\x0c", LabelsIDLen/2)
	values := [][]byte{[]byte("one"), []byte("another"), []byte("third")}
	for want, h := range map[string]Head{
		"labels of 3 series, 15 bytes as rows": {Kind: Labels},
		"chunks of 3 series, labels page " + strings.Repeat("5f0c", LabelsIDLen/2) + ", 15 bytes as rows":  {Kind: Chunks, Labels: labels},
		"rollups of 3 series, labels page " + strings.Repeat("5f0c", LabelsIDLen/2) + ", 15 bytes as rows": {Kind: Rollups, Labels: labels, At: []byte{1, 4, 7}},
	} {
		b := Append(nil, h, values)
		words, err := Describe(b)
		require.NoError(t, err)
		require.Regexp(t, "^[0-9]+ bytes, "+want+"$", words)
		b[len(b)/2]++
		_, err = Describe(b)
		require.ErrorIs(t, err, errCorrupt)
	}
}
