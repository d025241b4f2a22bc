package main

import (
	"context"
	"net"
	"os"
	"sync"

	"github.com/cassia-db/cassia/adapter/selfmonitoring"
	"github.com/cassia-db/cassia/storage/panics"
)

// startSelfMonitoring stores the process' own metrics until the returned function is called. A process that only serves
// queries stores none.
func (p *process) startSelfMonitoring(ctx context.Context, addresses []string) (stop func()) {
	if !p.c.SelfMonitoring || p.c.Target == "read" {
		return func() {}
	}
	o := selfmonitoring.DefaultOptions()
	o.Instance = instance(addresses[0])
	o.Gatherer = p.registry
	o.Metadata = p.store.NoteMetadata
	o.Logger = p.log.With("component", "selfmonitoring")
	o.Registerer = p.registry
	monitor := selfmonitoring.New(p.store, o)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { panics.Repeat(ctx, "storing own metrics", func() { monitor.Run(ctx) }) })
	return func() { cancel(); running.Wait() }
}

// instance identifies a process among those that share a store, by the machine's name and the port of an address on
// which the process listens. The external URL isn't used because it may be a load balancer's.
func instance(address string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return host
	}
	return net.JoinHostPort(host, port)
}
