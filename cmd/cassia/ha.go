package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/cassia-db/cassia/adapter/remotewrite"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/storage"
	replicas "github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/tenant"
)

// startReplicas starts the elections among the replicas of HA clusters. It returns nil if HA is off or this process
// doesn't ingest samples. The returned function stops the elections and must be called after the last request has
// ended.
func (p *process) startReplicas(ctx context.Context) (ha *remotewrite.HA, stop func(), err error) {
	c := &p.c.HA
	if !c.IsEnabled() || !p.hasRole("write") {
		return nil, func() {}, nil
	}
	o := replicas.DefaultOptions()
	o.Failover = c.Failover
	o.Bytes = c.HeldBytes
	o.ClusterBytes = max(1, c.HeldBytes/4)
	o.Clusters = c.Clusters
	o.Registerer = p.registry
	tracker, err := storage.NewTracker(ctx, p.store, o)
	if err != nil {
		return nil, nil, err
	}
	return &remotewrite.HA{
			Replicas: tracker, ClusterLabel: c.ClusterLabel, ReplicaLabel: c.ReplicaLabel, On: c.IsEnabledFor,
		},
		tracker.Close, nil
}

// haRoute returns the route that reports the state of a tenant's HA clusters.
func haRoute(ha *remotewrite.HA) server.Route {
	return server.Route{Path: "GET /api/v1/status/ha", Name: "/api/v1/status/ha", Role: server.Read, Tenant: true,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			clusters := []replicas.ClusterStatus{}
			if ha != nil {
				clusters = ha.Replicas.Status(tenant.FromContext(r.Context()))
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			// Encode fails only if the client has disconnected.
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": clusters})
		})}
}
