package main

import (
	"context"
	"net"
	"os"
	"sync"

	"github.com/cassia-db/cassia/adapter/selfmonitoring"
	"github.com/cassia-db/cassia/storage/panics"
)

// startSelfMonitoring stores the metrics of this process until the returned function is called. Processes that only
// serve queries don't store their metrics.
func (p *process) startSelfMonitoring(ctx context.Context, addresses []string) (stop func()) {
	if !p.c.SelfMonitoring || p.c.Target == "read" {
		return func() {}
	}
	o := selfmonitoring.DefaultOptions()
	o.Instance = instanceName(addresses[0])
	o.Gatherer = p.registry
	o.Metadata = p.store.QueueMetadata
	o.Logger = p.log.With("component", "selfmonitoring")
	o.Registerer = p.registry
	monitor := selfmonitoring.New(p.store, o)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { panics.Repeat(ctx, "storing own metrics", func() { monitor.Run(ctx) }) })
	return func() { cancel(); running.Wait() }
}

// instanceName returns a name that identifies this process among those that share the store: the machine's host name
// and the port of a listen address. The external URL isn't used because it may be the URL of a load balancer.
func instanceName(address string) string {
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
