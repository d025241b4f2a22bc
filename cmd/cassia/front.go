package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/server"
)

// errOpening is returned to clients until the store is open.
var errOpening = errors.New("the store is being opened")

// opening holds the reason why the store isn't open yet.
type opening struct{ cause atomic.Pointer[error] }

// waitFor sets the error that prevents the store from being opened. nil means that opening is in progress.
func (o *opening) waitFor(cause error) { o.cause.Store(&cause) }

// err returns the error with which requests are rejected.
func (o *opening) err() error {
	if cause := o.cause.Load(); cause != nil && *cause != nil {
		return fmt.Errorf("the store can't be opened yet: %w", *cause)
	}
	return errOpening
}

// frontServer is the HTTP server of a process. From the start it serves health checks, readiness checks and metrics. It
// rejects all other requests until serve is called.
type frontServer struct {
	server *server.Server
	// options are the options of the handler. Until the store is open, only options that don't need the store are set.
	options server.Options
	files   *server.Reloaders
	handler atomic.Pointer[http.Handler]
	// wait waits for the last request to end. The context passed to listen must have ended before wait is called.
	wait func() error
}

// listen listens on the addresses and serves requests until ctx ends. If a listener fails, the process is stopped with
// its error.
func (p *process) listen(ctx context.Context) (*frontServer, error) {
	f := &frontServer{files: server.NewReloaders(p.registry, p.log, time.Now), options: server.Options{
		API: server.UnreadyHandler(p.opening.err), Write: server.UnreadyHandler(p.opening.err),
		NotFound: server.UnreadyHandler(p.opening.err).ServeHTTP,
		Ready:    p.opening.err, AdminAPI: p.c.AdminAPI,
		Downsampling: func(context.Context) any { return map[string]string{"error": p.opening.err().Error()} },
		MaxBodies:    p.c.RequestBytes(),
		Federation:   p.c.Federation, Gatherer: p.registry, HTTP: server.NewMetrics(p.registry),
		Logger: p.log.With("component", "http"),
	}}
	p.setAuthorization(&f.options, f.files)
	f.files.Add("--limits.file", p.loadLimits)
	f.files.Add("--write.relabel-file", p.loadRelabeling)
	f.files.OnHangup(ctx)
	f.serve(server.NewHandler(f.options))
	var err error
	f.server, err = server.Listen(p.c.ListenAddresses, p.c.Web, p.c.RoutePrefix, f, f.options.HTTP, f.options.Logger)
	if err != nil {
		return nil, err
	}
	var (
		serving sync.WaitGroup
		ended   error
	)
	serving.Go(func() {
		if ended = f.server.Serve(ctx); ended != nil {
			p.fail(ended)
		}
	})
	f.wait = sync.OnceValue(func() error {
		serving.Wait()
		return ended
	})
	return f, nil
}

// serve makes h the handler of all later requests.
func (f *frontServer) serve(h http.Handler) { f.handler.Store(&h) }

func (f *frontServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*f.handler.Load()).ServeHTTP(w, r)
}
