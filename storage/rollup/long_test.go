package rollup

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
)

// chunked are the parts and chunks of a long chunk.
type chunked struct {
	parts  []Part
	chunks [][]byte
	width  int64
}

// cutUp cuts buckets into one chunk per slot of a random width. Some slots have no chunk, and some an empty one.
func cutUp(b *Buckets, width int64, r *rand.Rand) chunked {
	c := chunked{width: width}
	slot := width * (1 + r.Int64N(12))
	start, _ := bucketAround(b.Start[0], slot)
	versions := []uint64{1, r.Uint64(), math.MaxUint64}[r.IntN(3)]
	for from := 0; from < b.Len() && b.End[b.Len()-1] > start && len(c.parts) < 200; start += slot {
		to := from + endsUpTo(b.End[from:], start+slot)
		part := b.Slice(from, to)
		from = to
		what := r.IntN(12)
		switch {
		case what == 0:
			continue
		case what == 1 || part.Len() == 0:
			c.chunks = append(c.chunks, AppendEmpty(nil, versions))
		default:
			c.chunks = append(c.chunks, AppendChunk(nil, &part, width, versions))
		}
		c.parts = append(c.parts, Part{Start: start, Version: versions})
		if what == 2 {
			versions += uint64(r.IntN(3))
		}
	}
	return c
}

// long returns the long chunk of c.
func (c chunked) long(t testing.TB, name string) []byte {
	var all Buckets
	for _, encoded := range c.chunks {
		require.NoError(t, Decode(encoded, AllColumns, &all), name)
	}
	return AppendLong(nil, c.parts, &all, c.width)
}

// split returns the chunks of a long chunk.
func split(s *Long, want func(Part) bool) (c chunked, err error) {
	err = s.Split(want, func(p Part, encoded []byte) error {
		c.parts, c.chunks = append(c.parts, p), append(c.chunks, bytes.Clone(encoded))
		return nil
	})
	return c, err
}

func anyPart(Part) bool { return true }

func TestLongChunksGiveTheirChunksBack(t *testing.T) {
	r := rand.New(rand.NewPCG(soak.FirstSeed(t), 5))
	var s Long
	empties := 0
	for _, data := range series(t, 400) {
		for _, width := range []int64{1000, fiveMinutes, oneHour} {
			var b Buckets
			AppendEvery(&b, data.samples, width)
			part := b.Slice(0, min(b.Len(), MaxBuckets))
			c := cutUp(&part, width, r)
			if len(c.parts) == 0 {
				continue
			}
			encoded := c.long(t, data.name)
			require.True(t, IsLong(encoded))
			require.NoError(t, s.Parse(encoded), data.name)
			require.Equal(t, c.parts, s.Parts, data.name)
			got, err := split(&s, anyPart)
			require.NoError(t, err, data.name)
			require.Equal(t, c.parts, got.parts, data.name)
			require.Equal(t, c.chunks, got.chunks, data.name)
			for i, one := range c.parts {
				got, err := split(&s, func(p Part) bool { return p == one })
				require.NoError(t, err, data.name)
				require.Equal(t, c.chunks[i:i+1], got.chunks, data.name)
			}
			for _, encoded := range c.chunks {
				if encoded[0] == emptyFormat {
					empties++
				}
			}
		}
	}
	require.Positive(t, empties)
}

func TestLongChunksWithoutBuckets(t *testing.T) {
	parts := []Part{{Start: -5, Version: 3}, {Start: 7, Version: 9}}
	var s Long
	require.NoError(t, s.Parse(AppendLong(nil, parts, &Buckets{}, oneHour)))
	require.Equal(t, AppendEmpty(nil, 0), s.Chunk)
	got, err := split(&s, anyPart)
	require.NoError(t, err)
	require.Equal(t, chunked{parts: parts, chunks: [][]byte{AppendEmpty(nil, 3), AppendEmpty(nil, 9)}}, got)
}

// TestLongHeadIsShort requires that the header of parts with equal steps and versions is short, and that MaxParts parts
// are decoded.
func TestLongHeadIsShort(t *testing.T) {
	for _, n := range []int64{1, 2, 30, smallChunk + 1, MaxParts} {
		var parts []Part
		for i := range n {
			parts = append(parts, Part{Start: startMS + i*24*oneHour, Version: math.MaxUint64 - 3})
		}
		encoded := AppendLong(nil, parts, &Buckets{}, oneHour)
		require.Less(t, len(encoded)-len(AppendEmpty(nil, 0)), 40)
		var s Long
		require.NoError(t, s.Parse(encoded))
		require.Equal(t, parts, s.Parts)
	}
}

func TestSplitReturnsTheErrorOfYield(t *testing.T) {
	var s Long
	require.NoError(t, s.Parse(goldenLong(t)["equal days"].long(t, "")))
	calls, stop := 0, errors.New("stop")
	require.ErrorIs(t, s.Split(anyPart, func(Part, []byte) error { calls++; return stop }), stop)
	require.Equal(t, 1, calls)
}

func TestAppendLongRefusesWhatNoLongChunkHolds(t *testing.T) {
	var b Buckets
	AppendEvery(&b, usualShapes()[0].floats(100, 1), fiveMinutes)
	require.Panics(t, func() { AppendLong(nil, nil, &b, fiveMinutes) })
	require.Panics(t, func() { AppendLong(nil, make([]Part, MaxParts+1), &Buckets{}, fiveMinutes) })
	require.Panics(t, func() { AppendLong(nil, []Part{{Start: b.End[0]}}, &b, fiveMinutes) })
	require.Panics(t, func() { AppendLong(nil, []Part{{Start: 1}, {Start: 1}}, &b, fiveMinutes) })
	require.Panics(t, func() { AppendLong(nil, []Part{{Start: 1}}, &b, oneHour) })
	require.NotPanics(t, func() { AppendLong(nil, []Part{{Start: b.End[0] - 1}}, &b, fiveMinutes) })
}

func TestLongChunksAreNoChunks(t *testing.T) {
	encoded := goldenLong(t)["equal days"].long(t, "")
	_, err := Header(encoded)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "unknown format 3")
	require.ErrorIs(t, Decode(encoded, AllColumns, &Buckets{}), ErrCorrupt)
	require.Zero(t, VersionOf(encoded))
	for _, chunk := range [][]byte{
		nil, AppendEmpty(nil, 1), AppendChunk(nil, goldenBuckets(t)["starts"], fiveMinutes, 1),
	} {
		require.False(t, IsLong(chunk))
		require.ErrorIs(t, new(Long).Parse(chunk), ErrCorrupt)
	}
}

// longHeader returns the header of a long chunk of n parts with these runs and a valid checksum.
func longHeader(n uint64, runs ...byte) []byte {
	b := append(binary.AppendUvarint([]byte{longFormat}, n), runs...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func TestParseRefuses(t *testing.T) {
	ascending, constant := []byte{1, 2, 2}, []byte{0, 2} // runs of integers: 1, 2, 3…; 1, 1, 1…
	good := append(bytes.Clone(ascending), constant...)
	require.NoError(t, new(Long).Parse(longHeader(2, good...)))
	for name, b := range map[string][]byte{
		"nothing":             {},
		"format alone":        {longFormat},
		"no parts":            longHeader(0, good...),
		"too many parts":      longHeader(MaxParts+1, good...),
		"more than any":       longHeader(math.MaxUint64, good...),
		"no starts":           longHeader(2),
		"no versions":         longHeader(2, ascending...),
		"starts all equal":    longHeader(2, append(bytes.Clone(constant), constant...)...),
		"starts that go back": longHeader(2, 1, 2, 1, 0, 2),
		"checksum":            append(longHeader(2, good...)[:7], 0, 0, 0, 0),
	} {
		s := Long{Parts: []Part{{Start: 1}}, Chunk: []byte{1}}
		require.ErrorIs(t, s.Parse(b), ErrCorrupt, name)
		require.Empty(t, s.Parts, name)
		require.Nil(t, s.Chunk, name)
	}
}

func TestSplitRefuses(t *testing.T) {
	b := goldenBuckets(t)["starts"]
	one := AppendChunk(nil, b, fiveMinutes, 0)
	before := []Part{{Start: b.Start[0]}}
	for name, s := range map[string]Long{
		"no chunk":                  {Parts: before},
		"damaged chunk":             {Parts: before, Chunk: one[:len(one)-1]},
		"a long chunk as the chunk": {Parts: before, Chunk: AppendLong(nil, before, b, fiveMinutes)},
		"buckets without a part":    {Parts: []Part{{Start: b.End[0]}}, Chunk: one},
		"no parts":                  {Chunk: one},
	} {
		got, err := split(&s, anyPart)
		require.ErrorIs(t, err, ErrCorrupt, name)
		require.Empty(t, got.parts, name)
	}
}

func TestEveryCutAndFlippedBitOfALongChunkIsSeen(t *testing.T) {
	for name, c := range goldenLong(t) {
		good := c.long(t, name)
		for n := range good {
			_, err := parseAndSplit(good[:n])
			require.ErrorIs(t, err, ErrCorrupt, "%s cut at %d", name, n)
			bad := bytes.Clone(good)
			bad[n] ^= 1 << (n % 8)
			_, err = parseAndSplit(bad)
			require.ErrorIs(t, err, ErrCorrupt, "%s, byte %d", name, n)
		}
	}
}

func parseAndSplit(b []byte) (chunked, error) {
	var s Long
	if err := s.Parse(b); err != nil {
		return chunked{}, err
	}
	return split(&s, anyPart)
}

// FuzzLong parses bytes unmodified, and with a valid checksum of the header. A long chunk that is accepted must be
// equal after it is split and encoded again.
func FuzzLong(f *testing.F) {
	for _, c := range goldenLong(f) {
		f.Add(c.long(f, ""), []byte{})
	}
	f.Add([]byte{longFormat, 2, 1, 2, 2, 0, 2}, AppendEmpty(nil, 0))
	f.Fuzz(func(t *testing.T, head, inner []byte) {
		acceptableLong(t, head)
		acceptableLong(
			t, append(binary.LittleEndian.AppendUint32(bytes.Clone(head), crc32.Checksum(head, castagnoli)), inner...),
		)
		acceptableLong(t, append(
			binary.LittleEndian.AppendUint32(bytes.Clone(head), crc32.Checksum(head, castagnoli)), resealed(inner)...,
		))
	})
}

// acceptableLong splits b if it is a long chunk, and requires that its chunks give the same long chunk.
func acceptableLong(t *testing.T, b []byte) {
	var s Long
	if err := s.Parse(b); err != nil {
		require.ErrorIs(t, err, ErrCorrupt)
		require.Empty(t, s.Parts)
		return
	}
	require.LessOrEqual(t, len(s.Parts), MaxParts)
	c, err := split(&s, anyPart)
	if err != nil {
		require.ErrorIs(t, err, ErrCorrupt)
		require.Empty(t, c.parts)
		return
	}
	require.Equal(t, s.Parts, c.parts)
	info, err := Header(s.Chunk)
	require.NoError(t, err)
	c.width = info.Width
	again, err := parseAndSplit(c.long(t, "again"))
	require.NoError(t, err)
	require.Equal(t, c.parts, again.parts)
	require.Equal(t, c.chunks, again.chunks)
}

// goldenLong returns the chunks of the golden files' long chunks.
func goldenLong(t testing.TB) map[string]chunked {
	golden := map[string]chunked{}
	r := rand.New(rand.NewPCG(3, 5))
	for name, s := range map[string]*chunk.Samples{
		"ragged counter": usualShapes()[0].ragged(300, 7),
		"stale":          unusualShapes()[1].ragged(200, 6),
		"histograms":     histograms(t, 100, 7, false, true),
	} {
		var b Buckets
		AppendEvery(&b, s, fiveMinutes)
		golden[name] = chunked{width: fiveMinutes}
		half := b.Len() / 2
		first, second := b.Slice(0, half), b.Slice(half, b.Len())
		golden[name] = chunked{width: fiveMinutes,
			parts: []Part{{b.Start[0] - 1, 0}, {b.Start[0], 1 << 63}, {b.End[half-1], 7}, {b.End[b.Len()-1], 8}},
			chunks: [][]byte{
				AppendEmpty(nil, 0), AppendChunk(nil, &first, fiveMinutes, 1<<63),
				AppendChunk(nil, &second, fiveMinutes, 7), AppendEmpty(nil, 8),
			},
		}
	}
	var b Buckets
	AppendEvery(&b, usualShapes()[0].floats(480*2, r.Uint64()), oneHour)
	equal := chunked{width: oneHour}
	for i := range 4 {
		part := b.Slice(i, i+1)
		equal.parts = append(equal.parts, Part{part.Start[0], 12})
		equal.chunks = append(equal.chunks, AppendChunk(nil, &part, oneHour, 12))
	}
	golden["equal days"] = equal
	return golden
}

// TestGoldenLongChunks requires that the long chunks of all releases are split into the original chunks, and that the
// bytes of the current format are unchanged. A golden file has one line per part, and the long chunk's bytes in hex.
func TestGoldenLongChunks(t *testing.T) {
	for name, c := range goldenLong(t) {
		path := filepath.Join(
			"testdata", "long", fmt.Sprintf("v%d-%s.txt", longFormat, strings.ReplaceAll(name, " ", "-")),
		)
		if *rewrite {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(longText(c, c.long(t, name))), 0o644))
		}
		require.FileExists(t, path, "write it with -rewrite")
	}
	paths, err := filepath.Glob("testdata/long/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			file, err := os.ReadFile(path)
			require.NoError(t, err)
			var encoded []byte
			for line := range strings.Lines(string(file)) {
				if x, ok := strings.CutPrefix(strings.TrimSpace(line), "long "); ok {
					b, err := hex.DecodeString(x)
					require.NoError(t, err)
					encoded = append(encoded, b...)
				}
			}
			var s Long
			require.NoError(t, s.Parse(encoded))
			got, err := split(&s, anyPart)
			require.NoError(t, err)
			require.Equal(t, string(file), longText(got, encoded))
			info, err := Header(s.Chunk)
			require.NoError(t, err)
			got.width = info.Width
			require.Equal(t, hex.EncodeToString(encoded), hex.EncodeToString(got.long(t, path)),
				"the format has changed: it needs a new number, so that old long chunks stay readable")
		})
	}
}

func longText(c chunked, encoded []byte) string {
	var out strings.Builder
	for i, p := range c.parts {
		fmt.Fprintf(&out, "part of %d version %d: chunk %x\n", p.Start, p.Version, c.chunks[i])
	}
	for rest := encoded; len(rest) > 0; rest = rest[min(32, len(rest)):] {
		fmt.Fprintf(&out, "long %x\n", rest[:min(32, len(rest))])
	}
	return out.String()
}

// BenchmarkLong encodes and decodes a month of 1h buckets of a counter, as one long chunk and as one chunk per day.
func BenchmarkLong(b *testing.B) {
	var all Buckets
	AppendEvery(&all, usualShapes()[0].floats(720*240, 1), oneHour)
	c := chunked{width: oneHour}
	for day := range all.Len() / 24 {
		part := all.Slice(day*24, day*24+24)
		c.parts = append(c.parts, Part{Start: part.Start[0], Version: 12})
		c.chunks = append(c.chunks, AppendChunk(nil, &part, oneHour, 12))
	}
	long := c.long(b, "")
	perBucket := func(name string, do func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(all.Len()), "ns/bucket")
			b.ReportMetric(float64(len(long))/float64(len(bytes.Join(c.chunks, nil))), "of-chunks")
		})
	}
	var encoded []byte
	var into Buckets
	var s Long
	perBucket("encode/long", func() { encoded = AppendLong(encoded[:0], c.parts, &all, oneHour) })
	perBucket("encode/chunks", func() {
		for day := range c.parts {
			part := all.Slice(day*24, day*24+24)
			encoded = AppendChunk(encoded[:0], &part, oneHour, 12)
		}
	})
	perBucket("decode/long", func() {
		into.Reset()
		if s.Parse(long) != nil || Decode(s.Chunk, AllColumns, &into) != nil {
			b.Fatal("can't be read")
		}
	})
	perBucket("decode/chunks", func() {
		into.Reset()
		for _, encoded := range c.chunks {
			if Decode(encoded, AllColumns, &into) != nil {
				b.Fatal("can't be read")
			}
		}
	})
	perBucket("split", func() {
		if s.Split(anyPart, func(Part, []byte) error { return nil }) != nil {
			b.Fatal("can't be split")
		}
	})
}
