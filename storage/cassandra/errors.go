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

// ErrSettings means that the settings don't fit the cluster, or its content: trying again won't help. Open
// returns it.
var ErrSettings = errors.New("cassandra: invalid settings for this cluster")

// ErrLogin means that the user or the password is missing or wrong; it is an ErrSettings, too.
var ErrLogin = errors.New("cassandra: login failed")

// refusal is an ErrSettings whose text is only the cause and the remedy.
type refusal struct{ error }

// Is implements what errors.Is asks for.
func (refusal) Is(target error) bool { return target == ErrSettings }

func (r refusal) Unwrap() error { return r.error }

// loginRefusal is a refusal that is an ErrLogin.
type loginRefusal struct{ error }

// Is implements what errors.Is asks for.
func (loginRefusal) Is(target error) bool { return target == ErrLogin }

func (r loginRefusal) Unwrap() error { return r.error }

func refuse(format string, args ...any) error {
	return refusal{fmt.Errorf("cassandra: "+format, args...)}
}

// transient reports whether a request that ended so may do better on another node or a little later: the
// cluster is short of nodes or overloaded, or a connection broke. The request may have been carried out.
func transient(err error) bool {
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
		gocql.ErrTooManyTimeouts, gocql.ErrUnavailable, gocql.ErrHostQueryFailed, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return errors.As(err, &network)
}

// untouched reports whether a request that ended so has surely changed nothing: no node took it on.
func untouched(err error) bool {
	var unavailable *gocql.RequestErrUnavailable
	return errors.Is(err, gocql.ErrNoConnections) || errors.As(err, &unavailable)
}

// refused reports whether a user lacks the right to do that.
func refused(err error) bool {
	var request gocql.RequestError
	return errors.As(err, &request) && request.Code() == gocql.ErrCodeUnauthorized
}

// translate gives errors the engine's names. ctx is the caller's.
func (e *Engine) translate(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case e.ctx.Err() != nil, errors.Is(err, gocql.ErrSessionClosed):
		return engine.ErrClosed
	default:
		// Whatever it was, the engine can't answer now: a table that someone dropped may come back as well.
		return fmt.Errorf("cassandra: %s: %w: %s: %w", op, engine.ErrUnavailable, e.shortage(err), err)
	}
}

// shortage describes, for operators, which nodes or replicas were missing when a request failed.
func (e *Engine) shortage(err error) string {
	up, down := e.nodes.count()
	nodes := fmt.Sprintf("%d of %d nodes up", up, up+down)
	var unavailable *gocql.RequestErrUnavailable
	var write *gocql.RequestErrWriteTimeout
	var read *gocql.RequestErrReadTimeout
	switch {
	case refused(err):
		return fmt.Sprintf("user %q has no permission; run GRANT SELECT, MODIFY ON KEYSPACE %s TO %s", e.opts.Username, e.opts.Keyspace, e.opts.Username)
	case errors.As(err, &unavailable):
		return fmt.Sprintf("%s needs %d copies (%d reachable), %s", levelName(unavailable.Consistency), unavailable.Required, unavailable.Alive, nodes)
	case errors.As(err, &write):
		return fmt.Sprintf("%s needs %d copies (%d responded in time), %s", levelName(write.Consistency), write.BlockFor, write.Received, nodes)
	case errors.As(err, &read):
		return fmt.Sprintf("%s needs %d copies (%d responded in time), %s", levelName(read.Consistency), read.BlockFor, read.Received, nodes)
	default:
		return fmt.Sprintf("consistency %s, %s", e.opts.Consistency, nodes)
	}
}

// levelName is gocql's name, which lacks the levels of compare-and-set.
func levelName(c gocql.Consistency) string {
	switch s := gocql.SerialConsistency(c); s {
	case gocql.Serial, gocql.LocalSerial:
		return s.String()
	default:
		return c.String()
	}
}

// place names a table's partition in errors.
func place(t *engine.Table, partition engine.Key) string {
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

// checkTexts returns an error if Cassandra can't take a key that fits its table.
func checkTexts(fields []engine.Field, key engine.Key) error {
	for i, v := range key {
		if fields[i].Kind == engine.KindText && !utf8.ValidString(v.Text) {
			return fmt.Errorf("%w: %s is not UTF-8: %.100q", engine.ErrBadKey, fields[i].Name, v.Text)
		}
	}
	return nil
}

// checkPartition returns an error if Cassandra can't take a partition key: it must not be empty.
func checkPartition(t *engine.Table, partition engine.Key) error {
	if len(partition) == 1 && t.Partition[0].Kind != engine.KindInt && partition[0].Text == "" {
		return fmt.Errorf("%w: %s of %s is empty, but it is the only field of the partition key", engine.ErrBadKey, t.Partition[0].Name, t)
	}
	return checkTexts(t.Partition, partition)
}
