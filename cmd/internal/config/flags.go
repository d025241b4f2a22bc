package config

import (
	"strconv"

	"github.com/alecthomas/kingpin/v2"
)

// webFlags declares the flags of the HTTP server, and of the files that it reloads.
func webFlags(cmd *kingpin.CmdClause, c *Config) {
	cmd.Flag(
		"web.listen-address", "Address to listen on, as host:port. Repeatable.",
	).Default(":9201").StringsVar(&c.ListenAddresses)
	cmd.Flag("web.config.file", "File that enables TLS or basic authentication, in the format of the Prometheus "+
		"exporter-toolkit. Reloaded when the file or a certificate changes.").StringVar(&c.WebConfigFile)
	cmd.Flag("auth.file", "YAML file of users: names, hashes of passwords and tokens, names in client certificates, "+
		"roles and tenants. Reloaded on SIGHUP and POST /-/reload. Default: no authentication; every request is "+
		"allowed.").StringVar(&c.AuthFile)
	cmd.Flag(
		"web.enable-admin-api", "Enable the admin API: POST /-/seal and other requests that change data.",
	).BoolVar(&c.AdminAPI)
	cmd.Flag(
		"limits.file",
		"YAML file with limits per tenant: rates, series, sizes and queries. Reloaded on SIGHUP and POST /-/reload.",
	).StringVar(&c.LimitsFile)
	cmd.Flag("write.relabel-file", "YAML file with write_relabel_configs, as in prometheus.yml, for all tenants or "+
		"for one tenant. The rules drop or change incoming series. Reloaded on SIGHUP and POST /-/reload.").
		StringVar(&c.RelabelFile)
	cmd.Flag("tenants.federation", "Allow queries over more than one tenant, named as a|b.").BoolVar(&c.Federation)
	cmd.Flag(
		"web.enable-lifecycle", "Enable POST /-/reload, which reloads configuration files as SIGHUP does.",
	).BoolVar(&c.Lifecycle)
	cmd.Flag(
		"web.external-url",
		"URL under which Cassia is reachable from outside, such as https://example.org/cassia, or only its path, "+
			"/cassia. Links in alerts start with it. Default: the host name with the port of the first listen address.",
	).StringVar(&c.externalURL)
	cmd.Flag("web.route-prefix", "Path prefix of all requests that this process serves. Set it to / if a proxy "+
		"removes the path of --web.external-url. Default: the path of --web.external-url.").StringVar(&c.routePrefix)
	cmd.Flag("web.allowed-host",
		"Host name by which clients without a login may reach Cassia through a proxy on the same machine or in the "+
			"same pod, such as cassia.monitoring.svc, or *.example.org for all names below example.org. Always "+
			"accepted: IP addresses, localhost, names without a dot, the machine's name, and the name in "+
			"--web.external-url. Repeatable.").
		StringsVar(&c.AllowedHosts)
	cmd.Flag("web.cors.origin",
		"CORS: regular expression, matched in full, for origins whose pages may read responses of the query API, such "+
			"as https?://grafana\\.example\\.org. Credentials are never allowed, and other origins can't make "+
			"changes.").
		Default(".*").StringVar(&c.corsOrigin)
}

// storageFlags declares the flags of the store. maxBytes is the default memory limit, and parts contains the defaults
// of its parts.
func storageFlags(cmd *kingpin.CmdClause, c *Config, maxBytes int64, parts Parts) {
	bytesFlag(cmd, "memory.max-bytes", "Maximum memory of this process, which includes the limits set by other flags. "+
		"Near the limit, queries wait or fail. Default: 60% of the memory of the machine, or of its cgroup.",
		maxBytes, &c.Memory)
	cmd.Flag("target",
		"Role of this process in a cluster: write receives samples, read answers queries, downsample seals, all does "+
			"everything.").
		Default("all").StringVar(&c.Target)
	cmd.Flag("storage.partitions", "Number of staging partitions, which share the work of sealing. Default: unchanged "+
		"in an existing store; in a new one 4, or 16 on Cassandra. To change it, see cassia schema set-period.").
		IntVar(&c.Partitions)
	cmd.Flag("storage.slot", "Width of a slot, the unit of sealing: a multiple of 1h that divides 24h. Default: "+
		"unchanged in an existing store; 2h in a new one. To change it, see cassia schema set-period.").
		StringVar(&c.slot)
	cmd.Flag(
		"storage.settle", "Grace period: how long a slot waits for late samples after its end before it is sealed.",
	).Default("15m").StringVar(&c.settle)
	bytesFlag(cmd, "storage.head-bytes", "Maximum size of the head, which holds samples that are not yet sealed. "+
		"Above it, new series are rejected; at 125% of it, all samples are rejected. Default: a quarter of "+
		"--memory.max-bytes.", parts.Head,
		&c.HeadBytes).IsSetByUser(&c.set.isHeadSet)
	bytesFlag(
		cmd, "storage.cache-bytes",
		"Maximum size of the caches of sealed data: a third for blocks, the rest for series indexes. Default: a "+
			"fifth of --memory.max-bytes.",
		parts.Cache, &c.CacheBytes,
	).IsSetByUser(&c.set.isCacheSet)
	retentionFlags(cmd, &c.retention)
}

// queryFlags declares the flags of queries.
func queryFlags(cmd *kingpin.CmdClause, c *Config, parts Parts) {
	cmd.Flag("query.timeout", "Maximum duration of a query before it is aborted.").Default("2m").StringVar(&c.timeout)
	cmd.Flag("query.max-samples", "Maximum number of samples that a query may load into memory. Default: 50000000, or "+
		"the number that fits into a quarter of --memory.max-bytes if that is lower.").Default(strconv.FormatInt(
		parts.Samples, 10,
	)).IsSetByUser(&c.set.isSamplesSet).IntVar(&c.MaxSamples)
	cmd.Flag("query.max-concurrency", "Maximum number of concurrent queries.").Default("20").IntVar(&c.MaxConcurrency)
	cmd.Flag(
		"query.lookback-delta", "Lookback delta: maximum age of a sample that an instant selector returns.",
	).Default("5m").StringVar(&c.lookback)
	cmd.Flag(
		"query.log-slower-than", "Log queries that take longer than this; 0 disables the slow query log.",
	).Default("10s").StringVar(&c.slower)
	bytesFlag(cmd, "query.max-bytes", "Maximum number of encoded bytes that a query may read, and of label bytes that "+
		"its functions may create. Default: an eighth of --memory.max-bytes.",
		parts.Query, &c.QueryBytes).IsSetByUser(&c.set.isQuerySet)
	bytesFlag(
		cmd, "query.unread-bytes",
		"Maximum memory for query results until clients have read them. Above it, large queries wait. Default: a "+
			"sixteenth of --memory.max-bytes.",
		parts.Unread, &c.UnreadBytes,
	).IsSetByUser(&c.set.isUnreadSet)
	cmd.Flag("query.snap",
		"auto: range queries that would read more than two days of samples per series may snap window edges to rollup "+
			"buckets. Edges move by at most 1% of the range, and the response has an info annotation. off: edges are "+
			"never snapped.").Default("auto").EnumVar(&c.Snap, "auto", SnapOff)
	cmd.Flag(
		"remote-read.rollups",
		"How remote read handles time ranges whose raw samples have expired: expand reconstructs samples from "+
			"rollups, refuse returns 422.",
	).Default("expand").EnumVar(&c.ReadRollups, "expand", RefuseRollups)
	cmd.Flag("query.counter-suffix", "Suffix of metric names, such as _total. Of the rollups of metrics with this "+
		"suffix, only the sum can be queried by name (foo_total_sum), not min, max, count and avg. Repeatable.").
		StringsVar(&c.CounterSuffixes)
	cmd.Flag(
		"enable-feature",
		"Comma-separated names of optional PromQL features to enable, as in Prometheus. One or more of: ["+
			featureNames()+"]",
	).StringsVar(&c.features)
}
