// Package interop tests the remote write handler with other projects' senders, over HTTP and with a real store: the
// client that Prometheus' queues use, and client_golang's. It contains only tests. They aren't in package remotewrite
// because fuzzing would have to instrument the senders' many dependencies.
package interop
