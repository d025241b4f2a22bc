package webconfig

import (
	"errors"
	"net/http"

	"github.com/cassia-db/cassia/cmd/internal/auth"
)

// Handler returns a handler that applies the rate limit, the headers and the users of the last valid settings, and then
// calls next.
func (f *File) Handler(next http.Handler) http.Handler {
	if f == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := f.settings()
		if s.limiter != nil && !s.limiter.Allow() {
			rejectRequest(w, http.StatusTooManyRequests)
			return
		}
		for name, value := range s.headers {
			w.Header().Set(name, value)
		}
		if s.users == nil {
			next.ServeHTTP(w, r)
			return
		}
		switch _, err := s.users.Identify(r); {
		case err == nil:
			next.ServeHTTP(w, r)
		case errors.Is(err, auth.ErrUnknown):
			w.Header().Set("WWW-Authenticate", "Basic")
			rejectRequest(w, http.StatusUnauthorized)
		case errors.Is(err, auth.ErrBusy):
			w.Header().Set("Retry-After", "1")
			rejectRequest(w, http.StatusTooManyRequests)
		default: // The request's context has ended.
			rejectRequest(w, http.StatusServiceUnavailable)
		}
	})
}

func rejectRequest(w http.ResponseWriter, code int) { http.Error(w, http.StatusText(code), code) }
