package objects

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrNotFound means that there is no object of a name.
var ErrNotFound = errors.New("objects: no such object")

// Bucket stores objects by name. Its methods may be called concurrently. They retry after temporary errors, within
// limits, and return the context's error when it ends.
type Bucket interface {
	// Put stores size bytes of from as an object, whole or not at all. An object of the same name is replaced. When it
	// returns an error the object may be there all the same, whole.
	Put(ctx context.Context, name string, from io.Reader, size int64) error
	// Get returns an object's content, to be closed by the caller; ErrNotFound: there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the objects whose names start with a prefix, in any order. It reflects all earlier changes.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Delete removes an object. It is no error if there is none.
	Delete(ctx context.Context, name string) error
}

// Object is one object of a bucket.
type Object struct {
	Name string
	Size int64
	// Modified is when it was stored, by the bucket's clock.
	Modified time.Time
}
