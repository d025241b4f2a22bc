package ha

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// ClusterStatus is the state of a cluster of replicas as this process last read it.
type ClusterStatus struct {
	Cluster string `json:"cluster"`
	// Elected is the replica whose samples are stored. Since is the time of its election, and Heard of its last
	// heartbeat.
	Elected string    `json:"elected"`
	Since   time.Time `json:"since"`
	Heard   time.Time `json:"heard"`
	// Watermark is the reach of the elected replica's acknowledged samples.
	Watermark time.Time `json:"watermark"`
	// Elections counts the elections of this cluster so far, including the first.
	Elections int64 `json:"elections"`
	// State is "settled", "taking" while held samples of the elected replica are being stored, or "leaving" if that
	// replica lags so far that another one will be elected.
	State    string         `json:"state"`
	Replicas []ReplicaHeard `json:"replicas"`
	Held     HeldStatus     `json:"held"`
	Spans    []ReplicaSpan  `json:"spans"`
}

// ReplicaHeard is a replica that sends to this process, with the time of its last request.
type ReplicaHeard struct {
	Replica string    `json:"replica"`
	Heard   time.Time `json:"heard"`
}

// ReplicaSpan is a term: the samples after From, up to the next term, are stored from Replica.
type ReplicaSpan struct {
	Replica string    `json:"replica"`
	From    time.Time `json:"from"`
}

// HeldStatus is the number and size of the held rows that this process owns.
type HeldStatus struct {
	Rows  int   `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// Status returns the state of a tenant's clusters, in the order of their names.
func (r *Tracker) Status(tenant string) []ClusterStatus {
	list := []ClusterStatus{}
	for _, c := range r.listClusters() {
		if c.at.Tenant == tenant {
			if st, ok := c.status(); ok {
				list = append(list, st)
			}
		}
	}
	slices.SortFunc(list, func(a, b ClusterStatus) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return list
}

func (r *Tracker) listClusters() []*cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*cluster, 0, len(r.clusters))
	for _, c := range r.clusters {
		list = append(list, c)
	}
	return list
}

func (c *cluster) status() (ClusterStatus, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.election
	if ch == nil {
		return ClusterStatus{}, false
	}
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	out := ClusterStatus{
		Cluster: c.at.Cluster, Elected: ch.electedReplica(), Since: at(ch.SinceMS), Heard: at(ch.HeardMS),
		Watermark: at(max(ch.WatermarkMS, c.acked.reach)), Elections: ch.Epoch, State: "settled",
		Held: HeldStatus{Rows: len(c.held), Bytes: c.bytes},
	}
	switch {
	case ch.Taking != "":
		out.State = "taking"
	case ch.Leaving:
		out.State = "leaving"
	}
	out.Replicas = c.heard.list()
	slices.SortFunc(out.Replicas, func(a, b ReplicaHeard) int { return cmp.Compare(a.Replica, b.Replica) })
	for _, s := range ch.Terms {
		out.Spans = append(out.Spans, ReplicaSpan{s.Replica, at(s.FromMS)})
	}
	return out, true
}

// metrics are the counters of a Tracker.
type metrics struct {
	samples *prometheus.CounterVec
	elected prometheus.Counter
	dropped prometheus.Counter
}

func newMetrics(r *Tracker, reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	if reg != nil {
		reg.MustRegister(&collector{r: r, silence: prometheus.NewDesc("cassia_ha_elected_silence_seconds",
			"Time in seconds since any process last received samples from the elected replica, for at most 500 "+
				"replica clusters that were active within the last day.",
			[]string{"tenant", "cluster"}, nil),
			clusters: prometheus.NewDesc("cassia_ha_clusters",
				"Replica clusters, by whether the elected replica sent samples within the failover timeout.",
				[]string{"state"}, nil),
			rows: prometheus.NewDesc("cassia_ha_held_rows",
				"Rows of samples that this process holds for replicas that are not elected.", nil, nil),
			bytes: prometheus.NewDesc("cassia_ha_held_bytes",
				"Bytes of samples that this process holds for replicas that are not elected.", nil, nil)})
	}
	return &metrics{
		samples: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_ha_samples_total",
			Help: "Samples received from replicas, by result: stored (from the elected replica), held (from another " +
				"replica), covered (already stored from another replica), or taken (stored later from held samples)."},
			[]string{"result"}),
		elected: f.NewCounter(prometheus.CounterOpts{Name: "cassia_ha_elections_total",
			Help: "Failovers: times that this process elected another replica of a cluster."}),
		dropped: f.NewCounter(prometheus.CounterOpts{Name: "cassia_ha_held_dropped_samples_total",
			Help: "Held samples that were discarded, because the elected replica had sent the samples of their time."}),
	}
}

// collector exports gauges of a Tracker's clusters.
type collector struct {
	r                              *Tracker
	silence, clusters, rows, bytes *prometheus.Desc
}

// maxSilences bounds the number of clusters that export the silence metric. The clusters with the most recent
// heartbeats are exported.
const maxSilences = 500

// Describe implements prometheus.Collector.
func (m *collector) Describe(out chan<- *prometheus.Desc) {
	out <- m.silence
	out <- m.clusters
	out <- m.rows
	out <- m.bytes
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(out chan<- prometheus.Metric) {
	type silent struct {
		at      ClusterName
		silence time.Duration
	}
	var list []silent
	now, rows, bytes, heard, known := m.r.now(), 0, int64(0), 0, 0
	for _, c := range m.r.listClusters() {
		c.mu.Lock()
		rows, bytes = rows+len(c.held), bytes+c.bytes
		ch := c.election
		c.mu.Unlock()
		if ch == nil || ch.Retired {
			continue
		}
		known++
		silence := now.Sub(time.UnixMilli(ch.HeardMS))
		if silence <= m.r.opts.Failover {
			heard++
		}
		if silence <= forgetClusterAfter {
			list = append(list, silent{c.at, silence})
		}
	}
	if len(list) > maxSilences {
		slices.SortFunc(list, func(a, b silent) int {
			return cmp.Or(cmp.Compare(a.silence, b.silence), cmp.Compare(a.at.Tenant, b.at.Tenant),
				cmp.Compare(a.at.Cluster, b.at.Cluster))
		})
		list = list[:maxSilences]
	}
	for _, s := range list {
		out <- prometheus.MustNewConstMetric(
			m.silence, prometheus.GaugeValue, s.silence.Seconds(), s.at.Tenant, s.at.Cluster,
		)
	}
	out <- prometheus.MustNewConstMetric(m.clusters, prometheus.GaugeValue, float64(heard), "heard")
	out <- prometheus.MustNewConstMetric(m.clusters, prometheus.GaugeValue, float64(known-heard), "silent")
	out <- prometheus.MustNewConstMetric(m.rows, prometheus.GaugeValue, float64(rows))
	out <- prometheus.MustNewConstMetric(m.bytes, prometheus.GaugeValue, float64(bytes))
}
