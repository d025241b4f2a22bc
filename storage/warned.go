package storage

import "context"

type warnKey struct{}

// WithWarnings returns a context whose reads that have no other place for warnings, those of exemplars and of metadata, give
// them to warn, one at a time in each read: rows that can't be read are left out of their answers.
func WithWarnings(ctx context.Context, warn func(error)) context.Context {
	return context.WithValue(ctx, warnKey{}, warn)
}

// warningsOf returns what gets the warnings of a read; nil: nothing does.
func warningsOf(ctx context.Context) func(error) {
	warn, _ := ctx.Value(warnKey{}).(func(error))
	return warn
}
