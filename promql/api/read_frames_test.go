package api

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
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

// failing is a Queryable whose samples at 100 ms and later can't be read.
type failing struct {
	promstorage.SampleAndChunkQueryable
}

func (f failing) ChunkQuerier(mint, maxt int64) (promstorage.ChunkQuerier, error) {
	if mint >= 100 {
		return nil, errors.New("memory is short")
	}
	return f.SampleAndChunkQueryable.ChunkQuerier(mint, maxt)
}

// TestFramesAreSentInPieces checks that multiple small frames of remote read are sent with one write. If an error
// occurs, it replaces the frames that haven't been sent.
func TestFramesAreSentInPieces(t *testing.T) {
	data := teststorage.New(t)
	t.Cleanup(func() { require.NoError(t, data.Close()) })
	app, all := data.Appender(t.Context()), 3*framesPiece/100
	for i := range all {
		_, err := app.Append(0, labels.FromStrings("__name__", "many", "i",
			strings.Repeat("f", i%60)+string(rune('a'+i))), 1, 1)
		require.NoError(t, err)
	}
	_, err := app.Append(0, labels.FromStrings("__name__", "one"), 1, 1)
	require.NoError(t, err)
	require.NoError(t, app.Commit())
	a := &api{Options: Options{Queryable: failing{data}, Logger: slog.New(slog.DiscardHandler)}}
	ask := func(names ...string) *writeCounter {
		request := &prompb.ReadRequest{}
		for i, name := range names {
			request.Queries = append(request.Queries, &prompb.Query{
				StartTimestampMs: int64(100 * i), EndTimestampMs: 1000,
				Matchers: []*prompb.LabelMatcher{{Name: "__name__", Value: name}},
			})
		}
		w := &writeCounter{ResponseRecorder: httptest.NewRecorder()}
		a.sendFrames(w, httptest.NewRequest(http.MethodPost, Prefix+"/read", nil), request)
		return w
	}
	w := ask("many")
	require.Equal(t, http.StatusOK, w.Code)
	require.Greater(t, w.Body.Len(), 50*all)
	require.LessOrEqual(t, w.writes, 4)

	w = ask("one", "one")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Equal(t, "memory is short\n", w.Body.String())
}
