package main

import (
	"context"
	"log/slog"

	"github.com/cassia-db/cassia/storage"
)

// plainLog is a log handler that formats errors for users, see storage.PlainText.
type plainLog struct{ slog.Handler }

func (p plainLog) Handle(ctx context.Context, r slog.Record) error {
	plain := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		plain.AddAttrs(plainAttr(a))
		return true
	})
	return p.Handler.Handle(ctx, plain)
}

func (p plainLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return plainLog{p.Handler.WithAttrs(attrs)}
}

func (p plainLog) WithGroup(name string) slog.Handler { return plainLog{p.Handler.WithGroup(name)} }

func plainAttr(a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		return slog.String(a.Key, storage.PlainText(err.Error()))
	}
	if a.Key == "err" && a.Value.Kind() == slog.KindString {
		return slog.String(a.Key, storage.PlainText(a.Value.String()))
	}
	return a
}
