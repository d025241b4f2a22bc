package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeCounter counts the writes of an answer.
type writeCounter struct {
	*httptest.ResponseRecorder
	writes int
}

func (w *writeCounter) Write(p []byte) (int, error) {
	w.writes++
	return w.ResponseRecorder.Write(p)
}

// Small frames of remote read are sent many at once, and in place of those that weren't sent yet an error is.
func TestFramesAreSentInPieces(t *testing.T) {
	frame, all := []byte(strings.Repeat("f", 100)), 3*framesPiece/100
	answer := func(after func(w http.ResponseWriter)) *writeCounter {
		w := &writeCounter{ResponseRecorder: httptest.NewRecorder()}
		inPieces(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", streamedFrames+"; proto=prometheus.ChunkedReadResponse")
			after(w)
		})(w, httptest.NewRequest(http.MethodPost, Prefix+"/read", nil))
		return w
	}
	w := answer(func(w http.ResponseWriter) {
		for range all {
			n, err := w.Write(frame)
			require.NoError(t, err)
			require.Len(t, frame, n)
		}
		w.(http.Flusher).Flush()
	})
	require.Equal(t, all*len(frame), w.Body.Len())
	require.LessOrEqual(t, w.writes, 4)

	w = answer(func(w http.ResponseWriter) {
		_, err := w.Write(frame)
		require.NoError(t, err)
		http.Error(w, "memory is short", http.StatusServiceUnavailable)
	})
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "memory is short\n", w.Body.String())
}
