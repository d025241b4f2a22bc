package cassandra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"unicode/utf8"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
)

// ErrSettings means that the settings don't match the cluster or its contents, so that a retry can't help. Open returns
// it.
var ErrSettings = errors.New("cassandra: invalid settings for this cluster")

// ErrLogin means that the user or the password is missing or wrong. It is also an ErrSettings.
var ErrLogin = errors.New("cassandra: login failed")

// refusal is an ErrSettings whose text is only the cause and the remedy.
type refusal struct{ error }

// Is supports errors.Is.
func (refusal) Is(target error) bool { return target == ErrSettings }

func (r refusal) Unwrap() error { return r.error }

// loginRefusal is a refusal that is also an ErrLogin.
type loginRefusal struct{ error }

// Is supports errors.Is.
func (loginRefusal) Is(target error) bool { return target == ErrLogin }

func (r loginRefusal) Unwrap() error { return r.error }

func newRefusal(format string, args ...any) error {
	return refusal{fmt.Errorf("cassandra: "+format, args...)}
}

// isTransient reports whether a request that failed with err may succeed on another node or later: there are too few
// nodes, they are overloaded, or a connection broke. The request may have been applied.
func isTransient(err error) bool {
	var request gocql.RequestError
	if errors.As(err, &request) {
		switch request.Code() {
		case gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping, gocql.ErrCodeServer,
			gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteFailure, gocql.ErrCodeReadFailure,
			gocql.ErrCodeCASWriteUnknown, gocql.ErrCodeTruncate, gocql.ErrCodeUnprepared:
			return true
		}
		return false
	}
	var network net.Error
	for _, broken := range []error{
		gocql.ErrNoConnections, gocql.ErrConnectionClosed, gocql.ErrTimeoutNoResponse, gocql.ErrNoStreams,
		gocql.ErrTooManyTimeouts, gocql.ErrUnavailable, gocql.ErrHostQueryFailed, io.EOF, io.ErrUnexpectedEOF,
		net.ErrClosed,
	} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return errors.As(err, &network)
}

// isUntouched reports whether a request that failed with err has certainly changed nothing, because no node accepted
// it.
func isUntouched(err error) bool {
	var unavailable *gocql.RequestErrUnavailable
	return errors.Is(err, gocql.ErrNoConnections) || errors.As(err, &unavailable)
}

// isUnauthorized reports whether err means that the user doesn't have a required permission.
func isUnauthorized(err error) bool {
	var request gocql.RequestError
	return errors.As(err, &request) && request.Code() == gocql.ErrCodeUnauthorized
}

// translateError converts errors to the engine's errors. ctx is the caller's.
func (e *Engine) translateError(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case e.ctx.Err() != nil, errors.Is(err, gocql.ErrSessionClosed):
		return engine.ErrClosed
	default:
		// In all other cases the engine can't serve the request now. Even a dropped table may be restored.
		return fmt.Errorf("cassandra: %s: %w: %s: %w", op, engine.ErrUnavailable, e.describeShortage(err), err)
	}
}

// describeShortage describes, for operators, which nodes or replicas were missing when a request failed.
func (e *Engine) describeShortage(err error) string {
	up, down := e.nodes.count()
	nodes := fmt.Sprintf("%d of %d nodes up", up, up+down)
	var unavailable *gocql.RequestErrUnavailable
	var write *gocql.RequestErrWriteTimeout
	var read *gocql.RequestErrReadTimeout
	switch {
	case isUnauthorized(err):
		return fmt.Sprintf("user %q has no permission; run GRANT SELECT, MODIFY ON KEYSPACE %s TO %s",
			e.opts.Username, e.opts.Keyspace, e.opts.Username)
	case errors.As(err, &unavailable):
		return fmt.Sprintf("%s needs %d copies (%d reachable), %s",
			levelName(unavailable.Consistency), unavailable.Required, unavailable.Alive, nodes)
	case errors.As(err, &write):
		return fmt.Sprintf("%s needs %d copies (%d responded in time), %s",
			levelName(write.Consistency), write.BlockFor, write.Received, nodes)
	case errors.As(err, &read):
		return fmt.Sprintf("%s needs %d copies (%d responded in time), %s",
			levelName(read.Consistency), read.BlockFor, read.Received, nodes)
	default:
		return fmt.Sprintf("consistency %s, %s", e.opts.Consistency, nodes)
	}
}

// levelName returns gocql's name of a consistency level, or the name of a serial level, for which gocql has none.
func levelName(c gocql.Consistency) string {
	switch s := gocql.SerialConsistency(c); s {
	case gocql.Serial, gocql.LocalSerial:
		return s.String()
	default:
		return c.String()
	}
}

// describePartition describes a table's partition in errors.
func describePartition(t *engine.Table, partition engine.Key) string {
	s := t.Name
	for i, v := range partition {
		switch t.Partition[i].Kind {
		case engine.KindInt:
			s += fmt.Sprintf(" %s=%d", t.Partition[i].Name, v.Int)
		case engine.KindID:
			s += fmt.Sprintf(" %s=%x", t.Partition[i].Name, v.Text)
		default:
			s += fmt.Sprintf(" %s=%.100q", t.Partition[i].Name, v.Text)
		}
	}
	return s
}

// checkTexts returns an error if a key, which matches its table, has a text that Cassandra doesn't support.
func checkTexts(fields []engine.Field, key engine.Key) error {
	for i, v := range key {
		if fields[i].Kind == engine.KindText && !utf8.ValidString(v.Text) {
			return fmt.Errorf("%w: %s is not UTF-8: %.100q", engine.ErrBadKey, fields[i].Name, v.Text)
		}
	}
	return nil
}

// checkPartition returns an error if a partition key is only an empty text, which Cassandra doesn't support.
func checkPartition(t *engine.Table, partition engine.Key) error {
	if len(partition) == 1 && t.Partition[0].Kind != engine.KindInt && partition[0].Text == "" {
		return fmt.Errorf("%w: %s of %s is empty, but it is the only field of the partition key",
			engine.ErrBadKey, t.Partition[0].Name, t)
	}
	return checkTexts(t.Partition, partition)
}
