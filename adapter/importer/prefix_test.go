package importer_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
)

// TestPrefixContinues checks that Continue resumes an input after its prefix and returns other inputs whole, with
// seekable and with non-seekable inputs.
func TestPrefixContinues(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	changed := func(at int) string { return text[:at] + "x" + text[at+1:] }
	const far = 1_500_000
	for _, c := range []struct {
		prefix int
		input  string
		isSame bool
	}{
		{0, text, true},
		{1, text, true},
		{1000, text, true},
		{far, text, true},
		{len(text), text, true},
		{len(text), text + "more", true},
		{1000, changed(1000), true},
		{1000, changed(999), false},
		{far, changed(10), false},
		{far, changed(far - 1), false},
		{1000, text[:999], false},
		{far, text[:far-1], false},
		{1000, "", false},
	} {
		var p importer.Prefix
		for _, part := range []string{text[:c.prefix/3], text[c.prefix/3 : c.prefix]} {
			p.Add([]byte(part))
		}
		parsed, err := importer.ParsePrefix(p.String())
		require.NoError(t, err)
		require.Equal(t, p, parsed)
		for name, in := range map[string]io.Reader{
			"file": strings.NewReader(c.input), "pipe": iotest.HalfReader(bytes.NewBufferString(c.input)),
		} {
			rest, isSame, err := p.Continue(in)
			if name == "pipe" && c.prefix == far && !c.isSame && c.input[:20] == text[:20] {
				require.ErrorIs(t, err, importer.ErrOtherInput)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, c.isSame, isSame, "%s, %d bytes", name, c.prefix)
			got, err := io.ReadAll(rest)
			require.NoError(t, err)
			want := c.input
			if isSame {
				want = c.input[c.prefix:]
			}
			require.True(t, want == string(got), "%s, %d bytes", name, c.prefix)
		}
	}
	for _, text := range []string{
		"", "x", "1-2-3", "-1-0000000000000000-0000000000000000", "1-0000000000000000-0000000000000000 ",
	} {
		_, err := importer.ParsePrefix(text)
		require.ErrorContains(t, err, "the checkpoint has an invalid position", text)
	}
}
