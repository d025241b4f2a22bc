package ha

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestHeardReplicasOutliveTheirRequests requires that the names of replicas don't refer to requests, whose memory is
// used again.
func TestHeardReplicasOutliveTheirRequests(t *testing.T) {
	h, now := newHeardReplicas(), time.Unix(1000, 0)
	for range 3 {
		body := []byte("a")
		name := unsafe.String(&body[0], len(body))
		require.True(t, h.record(name, now))
		h.setFront(name, 5, now, time.Second)
		body[0] = 'x'
	}
	require.Equal(t, []ReplicaHeard{{"a", now.UTC()}}, h.list())
	require.Equal(t, int64(5), h.of("a").recentFront())
}
