// Package interop has senders that others wrote send to the handler, over HTTP and into a real store: the client
// that Prometheus' queues use, and client_golang's. It holds tests only, apart from those of the handler, because
// these senders bring a great deal of code with them, which fuzzing would have to instrument.
package interop
