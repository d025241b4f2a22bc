package server

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPlacesOfRequests checks that one client can't use all slots, and that requests whose clients keep the process
// waiting are aborted for other requests.
func TestPlacesOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(4, 3)
		enter := func(client string, e *Exchange) func() {
			t.Helper()
			leave, err := q.enterRequest(client, e)
			require.NoError(t, err)
			return leave
		}
		waiting := func() *Exchange {
			return &Exchange{since: time.Now(), conn: http.NewResponseController(discardingWriter{})}
		}
		leaveFirst := enter("a", &Exchange{})
		enter("a", &Exchange{})
		slow := waiting()
		slow.isReading = true
		leaveSlow := enter("a", slow)
		_, err := q.enterRequest("a", &Exchange{})
		require.EqualError(t, err,
			"too many requests in progress: 3 from this client; try again", "it hasn't been waited for long")
		enter("b", &Exchange{})
		_, err = q.enterRequest("b", &Exchange{})
		require.EqualError(t, err, "too many requests in progress: 4; try again")
		time.Sleep(minWait)
		enter("b", &Exchange{})
		require.True(t, slow.isAborted())
		leaveSlow()
		require.Len(t, q.places, 4)
		_, err = q.enterRequest("c", &Exchange{})
		require.ErrorIs(t, err, errCrowded)
		leaveFirst()
		leaveFirst()
		enter("c", &Exchange{})
		require.Equal(t, map[string]int{"a": 1, "b": 2, "c": 1}, q.clients)
	})
}

// TestBodiesUnderWayTakeNoPlaces checks that requests whose bodies are being received don't count against the limit of
// their client.
func TestBodiesUnderWayTakeNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(4, 2)
		var sending []*Exchange
		for range 4 {
			e := &Exchange{since: time.Now(), conn: http.NewResponseController(discardingWriter{})}
			sending = append(sending, e)
			_, err := q.enterRequest("a", e)
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		for i, client := range []string{"a", "b", "b"} {
			_, err := q.enterRequest(client, &Exchange{})
			require.NoError(t, err)
			require.True(t, sending[i].isAborted())
			require.False(t, sending[i+1].isAborted())
		}
		_, err := q.enterRequest("c", &Exchange{})
		require.EqualError(t, err, "too many requests in progress: 4; try again")
	})
}

// TestManyRequestsMakeRoomFirst checks that requests of a client with more than its share are aborted first, even if
// other clients have kept the process waiting longer.
func TestManyRequestsMakeRoomFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(2*manyConnections, 2*manyConnections)
		enter := func(client string) *Exchange {
			e := &Exchange{since: time.Now(), conn: http.NewResponseController(discardingWriter{})}
			_, err := q.enterRequest(client, e)
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
			return e
		}
		few := []*Exchange{enter("few"), enter("few")}
		var many []*Exchange
		for len(many) < q.limit-len(few) {
			many = append(many, enter("many"))
		}
		time.Sleep(minWait)
		for i := range many {
			enter("next")
			if len(many)-i <= q.limit/manyConnections { // The client is within its share now.
				break
			}
			require.True(t, many[i].isAborted(), i)
			require.False(t, few[0].isAborted())
		}
		require.True(t, few[0].isAborted())
	})
}

// discardingWriter is a ResponseWriter that supports deadlines but ignores them.
type discardingWriter struct{ http.ResponseWriter }

func (discardingWriter) SetReadDeadline(time.Time) error  { return nil }
func (discardingWriter) SetWriteDeadline(time.Time) error { return nil }
