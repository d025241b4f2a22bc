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
	// spareFor is the max time that the connection with the spare file handle is kept open.
	spareFor = 2 * time.Second
	// pendingInterval is the interval at which a listener checks for new connections while the process has no file
	// handles.
	pendingInterval = 50 * time.Millisecond
)

// spareHandle is a listener that accepts connections even if the process has no file handles left, so that /-/healthy
// and /-/ready are served:
//
//	accept fails ─► wait for a connection ─► close an idle one and accept
//	                                      └► none is idle: accept with the spare handle, one connection at a time
//
// Accept fails even before a connection arrives, because the system allocates the file handle first. Spare handles are
// therefore released only once a connection is waiting. Otherwise other parts of the process, such as the storage,
// could take the handle in the meantime.
type spareHandle struct {
	net.Listener
	// closeIdle closes an idle connection. It returns false if there is none. The caller must not hold mu.
	closeIdle func() bool

	mu    sync.Mutex
	spare *os.File // nil: in use by a connection, or couldn't be opened
}

func withSpareHandle(l net.Listener) *spareHandle {
	s := &spareHandle{Listener: l, closeIdle: func() bool { return false }}
	s.openSpare()
	return s
}

// openSpare opens the spare handle, if it isn't open. The caller must hold mu, unless the listener isn't in use yet.
func (l *spareHandle) openSpare() {
	if l.spare != nil {
		return
	}
	if f, err := os.Open(os.DevNull); err == nil {
		l.spare = f
	}
}

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
		l.openSpare()
	}
	if l.spare == nil || !isWithoutHandles(err) {
		return c, err
	}
	_ = l.spare.Close()
	l.spare = nil
	if c, err = l.Listener.Accept(); err != nil { // This accepts the connection for which no handle was left.
		l.openSpare()
		return nil, err
	}
	s := &spareConnection{Conn: c, of: l}
	time.AfterFunc(spareFor, func() { _ = s.Close() })
	return s, nil
}

// isWithoutHandles reports whether an error means that the process or the system has no file handles left.
func isWithoutHandles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

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

// spareConnection is the connection that uses the spare file handle.
type spareConnection struct {
	net.Conn
	of   *spareHandle
	once sync.Once
}

// Close implements net.Conn. It opens the spare handle again.
func (c *spareConnection) Close() (err error) {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		err = c.Conn.Close()
		c.of.openSpare()
	})
	return err
}
