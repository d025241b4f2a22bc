package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// events is the shortened output of go test -json for two packages whose tests ran concurrently.
const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    good_test.go:1: quiet\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    bad_test.go:7: why it failed\n"}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":2.5}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":0.5}
{"Action":"pass","Package":"q","Test":"TestMore","Elapsed":1}
{"Action":"output","Package":"q","Test":"TestJava","Output":"    java_test.go:9: no Java: install it\n"}
{"Action":"skip","Package":"q","Test":"TestJava","Elapsed":0}
{"Action":"output","Package":"q","Test":"TestConformance/Drop","Output":"    engine.go:9: it never drops\n"}
{"Action":"skip","Package":"q","Test":"TestConformance/Drop","Elapsed":0}
{"Action":"pass","Package":"q","Elapsed":1.5}
{"Action":"fail","Package":"p","Elapsed":3}
warning: a line that is no event
`

func TestReportTellsOfWhatFailedAndWasSkipped(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(events)))
	require.False(t, r.end(time.Minute, 1, false))
	said := out.String()
	require.Contains(t, said, "--- TestBad:\n    bad_test.go:7: why it failed\n")
	require.NotContains(t, said, "quiet", "it ran beside what failed, and passed")
	require.Contains(t, said, "skip  q TestJava: no Java: install it\n")
	require.Contains(t, said, "skip  q TestConformance/Drop: it never drops\n")
	require.Contains(t, said, "p TestBad")
	require.Contains(t, said, "2 passed, 1 failed, 2 skipped, in 1m0s\n")
	require.Contains(t, said, "warning: a line that is no event\n")
}

func TestSkipsFailTheRunUnlessAnEngineExplainsThem(t *testing.T) {
	for skipped, ok := range map[string]bool{"TestConformance/Drop": true, "TestJava": false} {
		var out strings.Builder
		r := newReport(&out)
		require.NoError(t, r.read(strings.NewReader(`{"Action":"skip","Package":"q","Test":"`+skipped+`"}`+"\n")))
		require.Equal(t, ok, r.end(time.Minute, 1, true), skipped)
		require.Contains(t, out.String(), "it gave no reason")
	}
}

func TestReportTellsWhatDidNotCompileOrEnd(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	require.NoError(
		t, r.read(strings.NewReader(`{"Action":"build-output","ImportPath":"p","Output":"p.go:1: undefined: x\n"}
{"Action":"build-fail","ImportPath":"p"}
{"Action":"output","Package":"q","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"q","Elapsed":9}
`)),
	)
	require.Contains(t, out.String(), "p does not compile:\np.go:1: undefined: x\n")
	require.Contains(t, out.String(), "TestHangs, which had not ended:\npanic: test timed out\n")
}

// TestSlowTestsAreNamedThatRunBesideOthers checks that a parallel subtest is listed separately, because its duration
// isn't included in its parent's.
func TestSlowTestsAreNamedThatRunBesideOthers(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(`{"Action":"pause","Package":"p","Test":"TestAll/first"}
{"Action":"cont","Package":"p","Test":"TestAll/first"}
{"Action":"pass","Package":"p","Test":"TestAll/first","Elapsed":99}
{"Action":"pass","Package":"p","Test":"TestAll/second","Elapsed":1}
{"Action":"pass","Package":"p","Test":"TestAll","Elapsed":1}
`)))
	require.True(t, r.end(time.Minute, 9, false))
	require.Regexp(t, `p TestAll/first +99.0 s\n +p TestAll +1.0 s\n`, out.String())
	require.NotContains(t, out.String(), "second")
}
