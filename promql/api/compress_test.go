package api

import (
	"cmp"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Clients that take gzip or deflate get the answers of others, compressed unless they are small.
func TestAnswersAreCompressed(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{
		"/query?query=m", "/query_range?query=vector(1)&start=0&end=1000&step=1", "/status/flags", "/query?query=(", "/status/buildinfo", "/labels", "/query?query=m&resolution=nonsense",
	} {
		want := r.get(Prefix + path)
		require.Empty(t, want.Header().Get("Content-Encoding"), path)
		for accept, encoding := range map[string]string{
			"gzip": "gzip", "deflate, gzip": "deflate", "br;q=1.0, gzip": "gzip", "zstd": "", "gzip;q=0": "",
		} {
			if want.Body.Len() <= smallAnswer {
				encoding = ""
			}
			for range 2 { // Encoders are used again.
				req := httptest.NewRequest(http.MethodGet, Prefix+path, nil)
				req.Header.Set("Accept-Encoding", accept)
				got := r.do(req)
				require.Equal(t, accept, req.Header.Get("Accept-Encoding"))
				require.Equal(t, want.Code, got.Code, path)
				require.Equal(t, encoding, got.Header().Get("Content-Encoding"), path)
				for _, name := range []string{"Vary", "Content-Type"} {
					require.Equal(t, want.Header().Values(name), got.Header().Values(name), path)
				}
				require.Equal(t, want.Body.String(), unpacked(t, encoding, got.Body), path)
			}
		}
	}
}

// An answer is the handler's, with its code, however it is cut; it is compressed once it has more than smallAnswer bytes.
func TestSmallAnswersAreNotCompressed(t *testing.T) {
	text := strings.Repeat("0123456789", 300)
	for _, size := range []int{0, 1, smallAnswer - 1, smallAnswer, smallAnswer + 1, len(text)} {
		for _, piece := range []int{1, 7, 1000, len(text)} {
			for _, code := range []int{0, http.StatusNotFound} {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Accept-Encoding", "gzip")
				compressed(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", strconv.Itoa(size))
					if code != 0 {
						w.WriteHeader(code)
					}
					for rest := text[:size]; rest != ""; {
						n, err := w.Write([]byte(rest[:min(piece, len(rest))]))
						require.NoError(t, err)
						rest = rest[n:]
					}
				})(w, r)
				got := w.Result()
				require.Equal(t, cmp.Or(code, http.StatusOK), got.StatusCode)
				require.Equal(t, []string{"Accept-Encoding"}, got.Header["Vary"])
				encoding, length := "", strconv.Itoa(size)
				if size > smallAnswer {
					encoding, length = "gzip", ""
				}
				require.Equal(t, encoding, got.Header.Get("Content-Encoding"))
				require.Equal(t, length, got.Header.Get("Content-Length"))
				require.Equal(t, text[:size], unpacked(t, encoding, w.Body))
			}
		}
	}
}

// A handler that panics has begun no answer: whoever recovers gives its own.
func TestPanicsAreNotCompressed(t *testing.T) {
	h := compressed(func(http.ResponseWriter, *http.Request) { panic("no") })
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	require.Panics(t, func() { h(w, r) })
	http.Error(w, "panicked", http.StatusInternalServerError)
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Empty(t, w.Header().Get("Content-Encoding"))
	require.Equal(t, "panicked\n", w.Body.String())
}

// What a handler has flushed is there to be read, and the header before it.
func TestCompressedAnswersAreFlushed(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	compressed(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, http.NewResponseController(w).Flush())
		_, err := w.Write([]byte("first"))
		require.NoError(t, err)
		require.NoError(t, http.NewResponseController(w).Flush())
	})(w, r)
	require.True(t, w.Flushed)
	require.Equal(t, "gzip", w.Result().Header.Get("Content-Encoding"))
	require.Equal(t, "first", unpacked(t, "gzip", w.Body))
}

func unpacked(t *testing.T, encoding string, body io.Reader) string {
	var err error
	switch encoding {
	case "gzip":
		body, err = gzip.NewReader(body)
	case "deflate":
		body, err = zlib.NewReader(body)
	}
	require.NoError(t, err)
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	return string(text)
}
