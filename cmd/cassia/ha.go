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

// startReplicas starts what chooses among the replicas of a cluster; nil where that is off, or this process takes no
// samples. The returned function stops it, when no request is left.
func (p *process) startReplicas(ctx context.Context) (ha *remotewrite.HA, stop func(), err error) {
	c := &p.c.HA
	if !c.Any() || !p.does("write") {
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
	return &remotewrite.HA{Replicas: tracker, ClusterLabel: c.ClusterLabel, ReplicaLabel: c.ReplicaLabel, On: c.On}, tracker.Close, nil
}

// haRoute answers with how the clusters of replicas stand that a tenant has.
func haRoute(ha *remotewrite.HA) server.Route {
	return server.Route{Path: "GET /api/v1/status/ha", Name: "/api/v1/status/ha", Role: server.Read, Tenant: true,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			clusters := []replicas.ClusterStatus{}
			if ha != nil {
				clusters = ha.Replicas.Status(tenant.From(r.Context()))
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": clusters}) // Whoever is gone needs no answer.
		})}
}
