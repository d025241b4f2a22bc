//go:build unix

package server

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// isPending reports whether a connection is waiting to be accepted. It returns an error if the listener is closed.
func isPending(l net.Listener) (pending bool, err error) {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return true, nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false, err
	}
	var polled error
	err = raw.Control(func(fd uintptr) {
		var n int
		n, polled = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		pending = n > 0 || polled != nil && !errors.Is(polled, unix.EINTR)
	})
	return pending, err
}
