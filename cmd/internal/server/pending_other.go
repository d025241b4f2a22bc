//go:build !unix

package server

import "net"

// isPending assumes that a connection waits to be accepted.
func isPending(net.Listener) (bool, error) { return true, nil }
