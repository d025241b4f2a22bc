package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// spareFor is how long a connection may stay open for which the process had no other file handle.
	spareFor = 2 * time.Second
	// pendingInterval is how often a listener checks for new connections while the process has no file handles.
	pendingInterval = 50 * time.Millisecond
)

// spareHandle is a listener that accepts connections while the process has no file handles, so that /-/healthy and /-/ready are answered:
//
//	accept fails ─► wait for a connection ─► close an idle one and accept ─► none is idle: accept with the spare handle, one connection at a time
//
// Accepting fails before there is a connection, because the system takes a file handle first. A handle that is released for a connection is
// used at once: other parts of the process, such as the storage, take those that are free.
type spareHandle struct {
	net.Listener
	// closeIdle closes an idle connection, or returns false if none is idle. It is called without mu.
	closeIdle func() bool

	mu    sync.Mutex
	spare *os.File // nil: a connection has its place, or there was none
}

func withSpareHandle(l net.Listener) *spareHandle {
	s := &spareHandle{Listener: l, closeIdle: func() bool { return false }}
	s.renew()
	return s
}

// renew takes a spare handle, if there is none; the caller holds mu, or is the only one.
func (l *spareHandle) renew() {
	if l.spare != nil {
		return
	}
	if f, err := os.Open(os.DevNull); err == nil {
		l.spare = f
	}
}

// Accept implements net.Listener.
func (l *spareHandle) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	for isWithoutHandles(err) {
		pending, closed := isPending(l.Listener)
		if closed != nil {
			return nil, closed
		}
		if pending {
			break
		}
		time.Sleep(pendingInterval)
		c, err = l.Listener.Accept()
	}
	if isWithoutHandles(err) && l.closeIdle() {
		c, err = l.Listener.Accept()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.renew()
	}
	if l.spare == nil || !isWithoutHandles(err) {
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

// isWithoutHandles reports whether the process, or the system, has no file handle left.
func isWithoutHandles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
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
