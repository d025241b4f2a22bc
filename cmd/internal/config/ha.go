package config

import (
	"slices"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
)

// HA holds the flags for HA replicas: pairs of Prometheus that send the same series.
type HA struct {
	Enabled bool
	// Tenants are the tenants for which HA is enabled if Enabled is false.
	Tenants                    []string
	ClusterLabel, ReplicaLabel string
	Failover                   time.Duration
	// HeldBytes is the max size of the held samples, which come from replicas that aren't elected. One HA cluster may
	// use a quarter of this size.
	HeldBytes int64
	// Clusters is the max number of clusters per tenant.
	Clusters int

	failover string
}

// haFlags declares the flags for HA replicas.
func haFlags(cmd *kingpin.CmdClause, h *HA) {
	cmd.Flag("ha.enabled", "Deduplicate pairs of Prometheus: store the samples of only one of the replicas, and drop "+
		"the label --ha.replica-label, which distinguishes them.").BoolVar(&h.Enabled)
	cmd.Flag(
		"ha.tenant", "Deduplicate pairs of Prometheus as --ha.enabled does, for this tenant only. Repeatable.",
	).StringsVar(&h.Tenants)
	cmd.Flag(
		"ha.cluster-label", "External label that all replicas of a pair share.",
	).Default("cluster").StringVar(&h.ClusterLabel)
	cmd.Flag(
		"ha.replica-label", "External label that distinguishes the replicas of a pair.",
	).Default("__replica__").StringVar(&h.ReplicaLabel)
	cmd.Flag("ha.failover-timeout", "Failover timeout: how long the elected replica may send nothing before another "+
		"one is elected. Must exceed the interval between two requests of a replica.").Default("30s").
		StringVar(&h.failover)
	bytesFlag(cmd, "ha.held-bytes", "Maximum disk space for samples of replicas that are not elected; one cluster may "+
		"use a quarter of it. Above it, these replicas get an error and retry.", 1<<30, &h.HeldBytes)
	cmd.Flag("ha.max-clusters", "Maximum number of replica clusters per tenant.").Default("100").IntVar(&h.Clusters)
}

// IsEnabledFor reports whether HA is enabled for a tenant.
func (h *HA) IsEnabledFor(tenant string) bool { return h.Enabled || slices.Contains(h.Tenants, tenant) }

// IsEnabled reports whether HA is enabled for any tenant.
func (h *HA) IsEnabled() bool { return h.Enabled || len(h.Tenants) > 0 }

func (c *Config) checkHA() error {
	h := &c.HA
	for _, l := range []struct{ flag, value string }{{"ha.cluster-label", h.ClusterLabel},
		{"ha.replica-label", h.ReplicaLabel}} {
		if !model.UTF8Validation.IsValidLabelName(l.value) || l.value == model.MetricNameLabel {
			return flagError(l.flag, l.value, "must be a label name")
		}
	}
	if h.ClusterLabel == h.ReplicaLabel {
		return flagError("ha.replica-label", h.ReplicaLabel, "must differ from the cluster label")
	}
	return parseDuration("ha.failover-timeout", h.failover, false, &h.Failover)
}
