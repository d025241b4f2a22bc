package storage

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
)

func TestMetadata(t *testing.T) {
	ts := openTestStore(t, nil)
	say := func(tenant, metric, typ, help string) {
		ts.QueueMetadata(tenant, []byte(metric), typ, nil, []byte(help))
	}
	get := func(tenant, metric string, limit int) map[string][]format.Metadata {
		found, err := ts.Metadata(t.Context(), tenant, metric, limit)
		require.NoError(t, err)
		return found
	}
	say("a", "up", "gauge", "Whether it is up.")
	say("a", "up", "gauge", "Whether it is up.")
	say("a", "up_total", "counter", "How often.")
	say("b", "up", "counter", "Of another tenant.")
	say("a", "", "gauge", "Of nothing.")
	say("a", "up\xff", "gauge", "A name that Cassandra refuses, with all that is written beside it.")
	say("a", strings.Repeat("x", 5000), "gauge", "A name that no series can have.")
	ts.reopen()
	require.Equal(t, map[string][]format.Metadata{
		"up": {{Type: "gauge", Help: "Whether it is up."}}, "up_total": {{Type: "counter", Help: "How often."}},
	}, get("a", "", 0))
	require.Equal(
		t, map[string][]format.Metadata{"up": {{Type: "counter", Help: "Of another tenant."}}}, get("b", "", 0),
	)
	require.Len(t, get("a", "", 1), 1)
	require.Len(t, get("a", "up", 0), 1)
	require.Empty(t, get("a", "down", 0))

	ts.now = ts.now.Add(24 * time.Hour)
	say("a", "up", "gauge", "Whether it answers.")
	say("a", "up", "gauge", "Whether it is up.")
	ts.reopen()
	require.ElementsMatch(
		t, []format.Metadata{{Type: "gauge", Help: "Whether it answers."}, {Type: "gauge", Help: "Whether it is up."}},
		get("a", "up", 0)["up"],
	)
	ts.now = ts.now.Add(10 * 24 * time.Hour)
	require.Empty(t, get("a", "", 0), "nobody said it for a long time")
}
