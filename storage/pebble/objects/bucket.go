package objects

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrNotFound means that an object doesn't exist.
var ErrNotFound = errors.New("objects: no such object")

// Bucket stores objects by name. Its methods may be called concurrently. They retry after temporary errors, within
// limits, and return the context's error when it ends.
type Bucket interface {
	// Put stores size bytes of from as an object, atomically. It replaces an object of the same name. After an error
	// the object may still have been stored, completely.
	Put(ctx context.Context, name string, from io.Reader, size int64) error
	// Get returns an object's content, which the caller must close, or ErrNotFound.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the objects whose names start with a prefix, in any order. It reflects all earlier changes.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Delete removes an object. If the object doesn't exist, Delete returns nil.
	Delete(ctx context.Context, name string) error
}

// Object is an object in a bucket.
type Object struct {
	Name string
	Size int64
	// Modified is the time at which the object was stored, by the bucket's clock.
	Modified time.Time
}
