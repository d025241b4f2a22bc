package config

import (
	"slices"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
)

// HA holds the flags of replicas that send the same series.
type HA struct {
	Enabled bool
	// Tenants are those for which it is on where Enabled is false.
	Tenants                    []string
	ClusterLabel, ReplicaLabel string
	Failover                   time.Duration
	// HeldBytes bounds the held samples of replicas that aren't elected; a quarter of it those of one cluster.
	HeldBytes int64
	// Clusters bounds the clusters of a tenant.
	Clusters int

	failover string
}

// haFlags declares the flags.
func haFlags(cmd *kingpin.CmdClause, h *HA) {
	cmd.Flag("ha.enabled", "Store the samples of one of several replicas of a Prometheus, which are told apart by --ha.replica-label, and leave that label out.").BoolVar(&h.Enabled)
	cmd.Flag("ha.tenant", "As --ha.enabled, for this tenant only. Can be repeated.").StringsVar(&h.Tenants)
	cmd.Flag("ha.cluster-label", "External label that the replicas have in common.").Default("cluster").StringVar(&h.ClusterLabel)
	cmd.Flag("ha.replica-label", "External label that tells the replicas apart.").Default("__replica__").StringVar(&h.ReplicaLabel)
	cmd.Flag("ha.failover-timeout", "How long the elected replica may not be heard before another is elected. Longer than the time between two requests of a replica.").Default("30s").StringVar(&h.failover)
	bytesFlag(cmd, "ha.held-bytes", "Maximum number of bytes, on disk, that this process holds of replicas that aren't elected; of one cluster a quarter of it. Above it, they are told to try again.", 1<<30, &h.HeldBytes)
	cmd.Flag("ha.max-clusters", "Maximum number of clusters of replicas that a tenant may have.").Default("100").IntVar(&h.Clusters)
}

// On reports whether a tenant's replicas are distinguished.
func (h *HA) On(tenant string) bool { return h.Enabled || slices.Contains(h.Tenants, tenant) }

// Any reports whether any tenant's are.
func (h *HA) Any() bool { return h.Enabled || len(h.Tenants) > 0 }

func (c *Config) checkHA() error {
	h := &c.HA
	for _, l := range []struct{ flag, value string }{{"ha.cluster-label", h.ClusterLabel}, {"ha.replica-label", h.ReplicaLabel}} {
		if !model.UTF8Validation.IsValidLabelName(l.value) || l.value == model.MetricNameLabel {
			return flagError(l.flag, l.value, "must be the name of a label")
		}
	}
	if h.ClusterLabel == h.ReplicaLabel {
		return flagError("ha.replica-label", h.ReplicaLabel, "must not be the label of the cluster")
	}
	return duration("ha.failover-timeout", h.failover, false, &h.Failover)
}
