package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// compareInGrafana queries Prometheus and Cassia through Grafana's data source, in the ways of panels, tables, heat
// maps and exemplars. The frames and the texts of errors must be equal.
func (s *stack) compareInGrafana(t *testing.T, began, end time.Time) {
	theirs, ours := newGrafana(t, s.writer.URL()), newGrafana(t, s.cassia.URL())
	for _, g := range []*grafana{theirs, ours} {
		g.from, g.to = began.Add(30*time.Second), end.Add(-10*time.Second)
	}
	frames := 0
	same := func(code int, query map[string]any) (drawn string) {
		want := theirs.send(t, "1s", query)
		// Prometheus sometimes interrupts a response, which the data source reports as "unexpected EOF". Such a
		// response isn't compared.
		for asked := time.Now(); code == http.StatusOK && want.Error != "" && time.Since(asked) < cassiatest.Patience; {
			t.Logf("asked Prometheus again, for it answered: %s", want.Error)
			want = theirs.send(t, "1s", query)
		}
		got := ours.send(t, "1s", query)
		require.Equal(t, code, want.Status, "%v: %s", query, want.Error)
		if code == http.StatusOK {
			require.NotEmpty(t, want.Frames, "%v gives nothing, so it shows nothing", query)
		}
		require.Equal(t, want.Error, got.Error, query)
		require.Equal(t, want.Status, got.Status, query)
		require.Equal(t, framesOf(t, want.Frames), framesOf(t, got.Frames), query)
		frames += len(want.Frames)
		return strings.Join(framesOf(t, want.Frames), "\n")
	}
	for _, expr := range s.queries {
		same(http.StatusOK, map[string]any{"expr": expr, "range": true})
		same(http.StatusOK, map[string]any{"expr": expr, "instant": true})
		same(http.StatusOK, map[string]any{"expr": expr, "instant": true, "format": "table"})
	}
	for expr, kind := range map[string]string{
		"traced_native_seconds": "heatmap-cells", "rate(traced_native_seconds[30s])": "heatmap-cells",
		"traced_classic_seconds_bucket": "timeseries-multi",
	} {
		drawn := same(http.StatusOK, map[string]any{"expr": expr, "range": true, "format": "heatmap"})
		require.Contains(t, drawn, `"type":"`+kind+`"`, expr)
	}
	for _, expr := range tracedQueries {
		drawn := same(http.StatusOK, map[string]any{"expr": expr, "range": true, "exemplar": true})
		require.Contains(t, drawn, `"exemplar"`, expr)
	}
	same(http.StatusOK, map[string]any{"expr": `"a text"`, "instant": true})
	same(http.StatusOK, map[string]any{"expr": "42", "range": true, "instant": true})
	same(http.StatusBadRequest, map[string]any{"expr": "up{", "range": true})
	same(http.StatusUnprocessableEntity, map[string]any{
		"expr": `label_replace(up, "a", "", "b", "(")`, "instant": true,
	})
	t.Logf("through Grafana's data source: the same %d frames", frames)
}

// framesOf returns the frames sorted, because the order of an instant query's frames is undefined. It removes the
// query, which the first frame contains.
func framesOf(t *testing.T, frames []json.RawMessage) (texts []string) {
	for _, f := range frames {
		var frame struct {
			Schema struct{ Name, Meta, Fields any }
			Data   any
		}
		require.NoError(t, json.Unmarshal(f, &frame))
		if meta, ok := frame.Schema.Meta.(map[string]any); ok {
			delete(meta, "executedQueryString")
		}
		text, err := json.Marshal(frame)
		require.NoError(t, err)
		texts = append(texts, string(text))
	}
	slices.Sort(texts)
	return texts
}
