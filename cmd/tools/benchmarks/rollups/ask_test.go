package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/promql/api"
)

func TestGetAsksForTheRange(t *testing.T) {
	q := questions(small)[2]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("resolution") == "broken" {
			http.Error(w, "no such thing", http.StatusBadRequest)
			return
		}
		require.Equal(t, "/api/v1/query_range", r.URL.Path)
		require.Equal(t, q.text, r.FormValue("query"))
		require.Equal(t, "1749517633", r.FormValue("start"), "an hour and the shift after the data begin")
		require.Equal(t, "1749772800", r.FormValue("end"))
		require.Equal(t, "3600", r.FormValue("step"))
		require.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
		w.Header().Set(api.ResolutionHeader, "5m snapped, raw")
		_, _ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	body, from, err := get(t.Context(), server.URL, q, "auto")
	require.NoError(t, err)
	require.Equal(t, "[]", string(body))
	require.Equal(t, "5m snapped, raw", from)
	_, _, err = get(t.Context(), server.URL, q, "broken")
	require.ErrorIs(t, err, promrig.ErrAPI)
	require.ErrorContains(t, err, "no such thing")
}

// TestFilledByOtherFlags checks that a folder filled with other flags is rejected.
func TestFilledByOtherFlags(t *testing.T) {
	dir := t.TempDir()
	want := filled{small, costs{Write: 1, Seal: 2}}
	require.NoError(t, writeFilled(filepath.Join(dir, "filled.json"), want))
	got, err := fill(t.Context(), dir, small)
	require.NoError(t, err)
	require.Equal(t, want.Costs, got)
	other := small
	other.Days++
	_, err = fill(t.Context(), dir, other)
	require.ErrorContains(t, err, "other flags")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "filled.json"), []byte("{"), 0o600))
	_, err = fill(t.Context(), dir, small)
	require.Error(t, err)
}
