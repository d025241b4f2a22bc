package doctor

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	findings := []Finding{
		ok("all is well"), {Error, "it burns", "fire", "water\nmore <water>"}, {Level: Note, What: "a"},
		{Level: Note, What: "b"},
	}
	SortFindings(findings)
	var text, asJSON bytes.Buffer
	require.NoError(t, Write(&text, findings))
	require.Equal(t, `error    it burns
         why  fire
         do   water
              more <water>
note     a
note     b
ok       all is well
1 error, 0 warnings, 2 notes, 1 ok
`, text.String())
	require.NoError(t, WriteJSON(&asJSON, "--here", findings[:2]))
	require.Equal(t, `{
  "where": "--here",
  "findings": [
    {
      "level": "error",
      "what": "it burns",
      "why": "fire",
      "do": "water\nmore <water>"
    },
    {
      "level": "note",
      "what": "a"
    }
  ]
}
`, asJSON.String())
	var read struct{ Findings []Finding }
	require.NoError(t, json.Unmarshal(asJSON.Bytes(), &read))
	require.Equal(t, findings[:2], read.Findings)
	require.ErrorContains(t, json.Unmarshal([]byte(`{"level":"grave"}`), new(Finding)),
		`"grave" is not a level of a finding`)
}

func TestAbout(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0 s", 1500 * time.Millisecond: "1.5 s", 5 * time.Minute: "5 min", -3 * time.Hour: "-3 h",
		72 * time.Hour: "3 d",
	} {
		require.Equal(t, want, formatApprox(d))
	}
}
