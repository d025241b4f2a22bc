package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// spareFor is how long a connection may stay open for which the process had no other file handle.
const spareFor = 2 * time.Second

// spareHandle is a listener that has a file handle for the time when the process has no more: it then accepts one connection at a
// time, so that /-/healthy and /-/ready are answered.
type spareHandle struct {
	net.Listener

	mu    sync.Mutex
	spare *os.File // nil: a connection has its place, or there was none
}

func withSpareHandle(l net.Listener) *spareHandle {
	s := &spareHandle{Listener: l}
	s.renew()
	return s
}

// renew takes a file handle again; the caller holds mu, or is the only one.
func (l *spareHandle) renew() {
	if f, err := os.Open(os.DevNull); err == nil {
		l.spare = f
	}
}

// Accept implements net.Listener.
func (l *spareHandle) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.spare == nil {
		l.renew()
	}
	if l.spare == nil || !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return c, err
	}
	_ = l.spare.Close()
	l.spare = nil
	if c, err = l.Listener.Accept(); err != nil { // It is the connection for which there was no handle.
		l.renew()
		return nil, err
	}
	s := &spareConnection{Conn: c, of: l}
	time.AfterFunc(spareFor, func() { _ = s.Close() })
	return s, nil
}

// Close implements net.Listener.
func (l *spareHandle) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare != nil {
		err = errors.Join(err, l.spare.Close())
		l.spare = nil
	}
	return err
}

// spareConnection has the place of the spare file handle.
type spareConnection struct {
	net.Conn
	of   *spareHandle
	once sync.Once
}

// Close implements net.Conn, and gives the handle back.
func (c *spareConnection) Close() (err error) {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		err = c.Conn.Close()
		c.of.renew()
	})
	return err
}
