package importer

import (
	"context"
	"io"

	"github.com/cassia-db/cassia/storage/panics"
)

// Interruptible returns a reader of a pipe whose reads also end with an error when ctx ends. A read of the pipe itself
// can't be interrupted: it may wait for the pipe's writer indefinitely, and ends only with the pipe or the process.
// Close releases the reader and closes the pipe.
func Interruptible(ctx context.Context, pipe io.ReadCloser) io.ReadCloser {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	copying := panics.WrapError("reading the input", func() error {
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{pipe}, make([]byte, pipeBuffer))
		return err
	})
	go func() { w.CloseWithError(copying()) }()
	return &interruptible{r, pipe, stop}
}

// pipeBuffer is the size of reads of a pipe.
const pipeBuffer = 256 << 10

type interruptible struct {
	*io.PipeReader
	pipe io.Closer
	stop func() bool
}

// Close implements io.Closer.
func (i *interruptible) Close() error {
	i.stop()
	_ = i.PipeReader.Close() // It always returns nil.
	return i.pipe.Close()
}
