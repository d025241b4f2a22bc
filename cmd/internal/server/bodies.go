package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/cassia-db/cassia/adapter"
)

// Limits on request bodies. Routes that receive samples or import history have separate limits.
const (
	// maxBody is the max size of one body in bytes.
	maxBody = 10 << 20
	// maxBodies is the max total size of the bodies of all requests in progress, in bytes.
	maxBodies = 256 << 20
)

// bodyLimits limits the size of request bodies.
type bodyLimits struct {
	each   int64
	budget *adapter.Budget
}

// serveBounded calls next with a request whose body and form are within the limits.
func (b bodyLimits) serveBounded(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.Body == nil || r.Body == http.NoBody {
		next.ServeHTTP(w, r)
		return
	}
	share := b.budget.NewShare(r.Context())
	defer share.Release()
	r.Body = &boundedBody{ReadCloser: r.Body, left: b.each, share: &share}
	var err error
	switch {
	case r.ContentLength > b.each:
		err = adapter.ErrTooLarge
	case isForm(r):
		err = r.ParseForm() // A handler that reads single values would mistake part of a form for the whole.
	default:
		// Read the whole body first: handlers don't handle a body that exceeds the limit, and they claim resources that
		// they must not hold while a slow body is received.
		err = readWhole(r)
	}
	switch {
	case errors.Is(err, adapter.ErrTooLarge):
		rejectAPI(w, http.StatusRequestEntityTooLarge, "bad_data",
			fmt.Sprintf("the body has more than %d bytes", b.each))
	case errors.Is(err, adapter.ErrBusy):
		w.Header().Set("Retry-After", "1")
		rejectAPI(w, http.StatusServiceUnavailable, "unavailable", "too many request bytes in flight; try again")
	case errors.Is(err, errGivenUp):
		w.Header().Set("Retry-After", "1")
		rejectAPI(w, http.StatusServiceUnavailable, "unavailable", plainText(err))
	case errors.Is(err, errSlow):
		rejectAPI(w, http.StatusRequestTimeout, "timeout", plainText(err))
	case err != nil:
		rejectAPI(w, http.StatusBadRequest, "bad_data", "reading the body: "+err.Error())
	default:
		next.ServeHTTP(w, r)
	}
}

func readWhole(r *http.Request) error {
	all, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(all))
	return err
}

// isForm reports whether the parameters of a request are in its body.
func isForm(r *http.Request) bool {
	if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch {
		return false
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/x-www-form-urlencoded"
}

// boundedBody is a body that returns adapter.ErrTooLarge or adapter.ErrBusy when a limit is reached.
type boundedBody struct {
	io.ReadCloser
	left  int64
	share *adapter.Share
}

func (b *boundedBody) Read(into []byte) (int, error) {
	if b.left < 0 {
		return 0, adapter.ErrTooLarge
	}
	if int64(len(into)) > b.left+1 { // Read one more byte to detect a body over the limit.
		into = into[:b.left+1]
	}
	n, err := b.ReadCloser.Read(into)
	b.left -= int64(n)
	if b.left < 0 {
		return n, adapter.ErrTooLarge
	}
	if busy := b.share.Claim(int64(n)); busy != nil {
		return n, busy
	}
	return n, err
}
