//go:build !unix

package server

import "net"

// isPending returns true, because this system can't report whether a connection waits to be accepted.
func isPending(net.Listener) (bool, error) { return true, nil }
