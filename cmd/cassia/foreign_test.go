package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A form of a foreign page, which a browser sends without asking, deletes nothing; a program's request does.
func TestAForeignPageDeletesNothing(t *testing.T) {
	t.Parallel()
	r := startServe(t, "--storage.path="+t.TempDir())
	at := time.Now().Truncate(time.Second)
	r.Write(t, "kept", at, 1)
	require.Equal(t, "1", r.Value(t, "kept", at))
	remove := func(host string, header ...string) (int, string) {
		request, err := http.NewRequest(http.MethodPost, r.URL+"/api/v1/admin/tsdb/delete_series", strings.NewReader("match[]={__name__=~\".%2B\"}"))
		require.NoError(t, err)
		request.Host = host
		request.Header.Set("Content-Type", formType)
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	for _, c := range []struct {
		host   string
		header []string
	}{
		{"", []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}},
		{"", []string{"Origin", "http://evil.example"}},
		{"evil.example", []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}},
	} {
		code, text := remove(c.host, c.header...)
		require.Equal(t, http.StatusForbidden, code, text)
		require.Contains(t, text, `"errorType":"forbidden"`)
		require.Equal(t, "1", r.Value(t, "kept", at))
	}
	code, text := remove("")
	require.Equal(t, http.StatusNoContent, code, text)
	require.Empty(t, r.Value(t, "kept", at))
}
