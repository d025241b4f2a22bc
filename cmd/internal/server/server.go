package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/cmd/internal/webconfig"
)

// Limits of each listener.
const (
	// maxConnections is the max number of open connections of one listener, without spare connections.
	maxConnections = 1024
	// maxHeaderBytes is the max size of the request line and the headers. The URL may contain a long query.
	maxHeaderBytes = 256 << 10
	// readHeaderTimeout is the max time for receiving the headers of a request. The time for the body is limited by
	// pace.
	readHeaderTimeout = 10 * time.Second
	// maxStreams is the max number of concurrent requests on an HTTP/2 connection. streamBuffer is the max number of
	// bytes per request that are received before the handler reads them.
	maxStreams   = 100
	streamBuffer = 256 << 10
	// idleTimeout is the max time that an idle connection is kept open.
	idleTimeout = 5 * time.Minute
	// drainTimeout is the max time to complete the requests in progress when the process stops.
	drainTimeout = 10 * time.Second
)

// Server is an HTTP server that listens on one or more addresses.
type Server struct {
	listeners []net.Listener
	servers   []*http.Server
	log       *slog.Logger
}

// Listen listens on the addresses, each of the form host:port. web may be nil, for neither TLS nor users. prefix is
// the handler's Options.RoutePrefix. The error names the remedy.
func Listen(addresses []string, web *webconfig.File, prefix string, h http.Handler, m *Metrics,
	log *slog.Logger) (*Server, error) {
	s := &Server{log: log}
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			s.close()
			return nil, listenError(address, err)
		}
		s.listeners = append(s.listeners, limitConnections(withSpareHandle(l), maxConnections,
			spareConnections, m.evicted, log))
		server := newServer(prefix, h, usualPace(), log)
		server.Handler, server.TLSConfig = web.Handler(server.Handler), web.TLS()
		s.servers = append(s.servers, server)
	}
	return s, nil
}

func newServer(prefix string, h http.Handler, p minPace, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: p.wrapHandler(trackRequests(prefix, h)), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext:       withConnection,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: p.total, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: streamBuffer,
			MaxReceiveBufferPerStream: streamBuffer,
			SendPingTimeout:           p.stuck, PingTimeout: p.stuck, WriteByteTimeout: p.stuck,
		},
	}
}

func listenError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf(
			"--web.listen-address=%s: the address is in use by another program; stop it, or choose another port",
			address,
		)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("--web.listen-address=%s: permission denied; choose a port above 1023", address)
	}
	return fmt.Errorf("--web.listen-address=%s: %w", address, err)
}

// Addresses returns the addresses on which the server listens.
func (s *Server) Addresses() (out []string) {
	for _, l := range s.listeners {
		out = append(out, l.Addr().String())
	}
	return out
}

// Serve serves requests until ctx ends or a listener fails. It then rejects new requests, waits up to drainTimeout for
// the requests in progress, and returns.
func (s *Server) Serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, l := range s.listeners {
		group.Go(func() error {
			server := s.servers[i]
			s.log.Info("listening", "address", l.Addr().String(), "tls", server.TLSConfig != nil)
			serve := server.Serve
			if server.TLSConfig != nil {
				serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
			}
			err := serve(l)
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return err
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		s.drainConnections()
		return nil
	})
	return group.Wait()
}

func (s *Server) drainConnections() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	var group errgroup.Group
	for _, server := range s.servers {
		group.Go(func() error {
			err := server.Shutdown(ctx)
			if err != nil {
				s.log.Warn("some requests took too long to finish and were aborted", "err", err)
				err = server.Close()
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.log.Warn("can't close the listeners", "err", err)
	}
}

func (s *Server) close() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}
