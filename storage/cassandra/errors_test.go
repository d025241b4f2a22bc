package cassandra

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
)

func TestShortageSaysWhatIsMissing(t *testing.T) {
	e := &Engine{opts: DefaultOptions(), nodes: newNodes("dc1", slog.New(slog.DiscardHandler))}
	e.nodes.up = map[string]bool{"a": true, "b": false, "c": false}
	for want, err := range map[string]error{
		"LOCAL_QUORUM needs 2 copies (1 reachable), 1 of 3 nodes up": &gocql.RequestErrUnavailable{
			Consistency: gocql.LocalQuorum, Required: 2, Alive: 1},
		"LOCAL_QUORUM needs 2 copies (1 responded in time), 1 of 3 nodes up": &gocql.RequestErrWriteTimeout{
			Consistency: gocql.LocalQuorum, BlockFor: 2, Received: 1},
		"LOCAL_SERIAL needs 2 copies (0 responded in time), 1 of 3 nodes up": &gocql.RequestErrWriteTimeout{
			Consistency: gocql.Consistency(gocql.LocalSerial), BlockFor: 2},
		"ALL needs 3 copies (2 responded in time), 1 of 3 nodes up": &gocql.RequestErrReadTimeout{
			Consistency: gocql.All, BlockFor: 3, Received: 2},
		"consistency LOCAL_QUORUM, 1 of 3 nodes up": errors.New("no answer"),
	} {
		require.Equal(t, want, e.describeShortage(err))
	}
}
