package api

import (
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnswersAreCompressed checks that clients that accept gzip or deflate get the same answers as other clients,
// compressed.
func TestAnswersAreCompressed(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{
		"/query?query=m", "/query_range?query=vector(1)&start=0&end=1000&step=1", "/query?query=(", "/status/buildinfo",
		"/labels", "/query?query=m&resolution=nonsense",
	} {
		want := r.get(Prefix + path)
		require.Empty(t, want.Header().Get("Content-Encoding"), path)
		for accept, encoding := range map[string]string{
			"gzip": "gzip", "deflate, gzip": "deflate", "br;q=1.0, gzip": "gzip", "zstd": "", "gzip;q=0": "",
		} {
			for range 2 { // Encoders are reused.
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

// TestPanicsAreNotCompressed checks that a handler that panics hasn't started its answer, so that the code that
// recovers from the panic can write an error.
func TestPanicsAreNotCompressed(t *testing.T) {
	h := withCompression(func(http.ResponseWriter, *http.Request) { panic("no") })
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	require.Panics(t, func() { h(w, r) })
	http.Error(w, "panicked", http.StatusInternalServerError)
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Empty(t, w.Header().Get("Content-Encoding"))
	require.Equal(t, "panicked\n", w.Body.String())
}

// TestCompressedAnswersAreFlushed checks that the header and flushed data can be read immediately.
func TestCompressedAnswersAreFlushed(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	withCompression(func(w http.ResponseWriter, _ *http.Request) {
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
