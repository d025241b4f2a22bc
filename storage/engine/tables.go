package engine

// The tables of the store. The window is the first field of the partition key in tables whose rows expire. Retention
// can then drop a window with one range, and on Pebble a day's writes are in neighboring blocks.
//
//	table     partition key                                 clustering key
//	stage     slot, partition                               writer, seq            samples that aren't sealed
//	staged    partition, unit                               slot, generation, state  slots with rows in table stage
//	sealed    window, tenant                                slot, partition, id    one commit record per seal
//	raw       window, class, tenant, metric, shard          kind, start, series, version   labels, chunks, exemplars
//	r5m, r1h  window, class, tenant, metric, shard          kind, series, start    rollups; the highest version wins
//	raw_pages  as raw                                       kind, start, bits, first, version   pages of rows of raw
//	r5m_pages, r1h_pages  as raw                            kind, bits, first, start, version   pages of rows of r5m and r1h
//	catalog   window, resolution, tenant, kind, label, salt value                  names of metrics, labels, values
//	metadata  window, tenant                                metric, content        type, unit, help
//	store     name                                          item                   settings; retention boundaries; tenants with deltas
//	windows   tenant                                        window                 windows with rows
//	tenants   list                                          tenant                 tenants with rows, tenants with deletes
//	lease     name                                          item                   the process that works on an item
//	defined   slot, partition                               writer, seq            series defined by sealed blobs
//	tails     writer                                        slot, partition        stream positions of a writer
//	processes list                                          writer                 processes; observed uptime
//	shards    window, tenant                                metric                 metrics with multiple shards
//	delete    tenant                                        id                     tombstones, until they are cleaned
//	held      tenant, cluster, era                          replica, writer, seq   samples of replicas that aren't elected
//	chosen    bucket                                        tenant, cluster        the elected replica of a cluster
//
// IDs 0 and 255 are unused, so that an engine may have its own rows outside the tables.
var (
	// Stage contains the staging log: blobs of samples that are durable and not sealed.
	Stage = &Table{ID: 1, Name: "stage",
		Partition:  []Field{{"slot", KindInt}, {"partition", KindInt}},
		Clustering: []Field{{"writer", KindID}, {"seq", KindInt}}}
	// Staged lists the slots of a partition whose staging log may have rows. A unit is a range of slots. The table
	// lists the slots of each unit, and the units of each partition. If one process has exclusive use of the engine,
	// the table is empty, because the engine can list the partitions of table stage.
	Staged = &Table{ID: 27, Name: "staged",
		Partition:  []Field{{"partition", KindInt}, {"unit", KindInt}},
		Clustering: []Field{{"slot", KindInt}, {"generation", KindID}, {"state", KindInt}}}
	// Sealed has one row per seal, the commit record. A cached window is valid while the window's rows in this table
	// are unchanged.
	Sealed = &Table{ID: 4, Name: "sealed", Remembered: true,
		Partition:  []Field{{"window", KindInt}, {"tenant", KindText}},
		Clustering: []Field{{"slot", KindInt}, {"partition", KindInt}, {"id", KindID}}}
	// Raw contains the labels, chunks and exemplars of a metric's series. The values of field kind are the Kind
	// constants of package format.
	Raw = &Table{ID: 5, Name: "raw", Remembered: true,
		Partition: []Field{{"window", KindInt}, {"class", KindInt}, {"tenant", KindText},
			{"metric", KindText}, {"shard", KindInt}},
		Clustering: []Field{{"kind", KindInt}, {"start", KindInt}, {"series", KindID}, {"version", KindID}}}
	// R5m and R1h contain labels and rollup chunks of a metric's series: one chunk per slot in R5m, one per day in R1h.
	// The rows of a series are adjacent, because they are read over long time ranges.
	R5m = &Table{ID: 6, Name: "r5m", Converging: true, Partition: rollupPartition, Clustering: rollupClustering}
	R1h = &Table{ID: 7, Name: "r1h", Converging: true, Partition: rollupPartition, Clustering: rollupClustering}
	// RawPages, R5mPages and R1hPages contain pages: the labels or chunks of many series. The first bits of these
	// series' ids are equal. Field bits is the number of equal bits, and field first contains them.
	RawPages = &Table{ID: 24, Name: "raw_pages", Remembered: true, Partition: rollupPartition,
		Clustering: []Field{{"kind", KindInt}, {"start", KindInt}, {"bits", KindInt},
			{"first", KindID}, {"version", KindID}}}
	R5mPages = &Table{ID: 25, Name: "r5m_pages", Partition: rollupPartition, Clustering: rollupPagesClustering}
	R1hPages = &Table{ID: 26, Name: "r1h_pages", Partition: rollupPartition, Clustering: rollupPagesClustering}
	// Catalog lists the names of metrics and labels, and the values of labels, in a window, each with the number of its
	// series.
	Catalog = &Table{ID: 8, Name: "catalog",
		Partition: []Field{{"window", KindInt}, {"resolution", KindInt}, {"tenant", KindText}, {"kind", KindInt},
			{"label", KindText}, {"salt", KindInt}},
		Clustering: []Field{{"value", KindText}}}
	// Metadata contains the type, unit and help that senders have sent for a metric.
	Metadata = &Table{ID: 9, Name: "metadata",
		Partition:  []Field{{"window", KindInt}, {"tenant", KindText}},
		Clustering: []Field{{"metric", KindText}, {"content", KindID}}}
	// Store contains the settings of the store, including the format version and the periods, and one row of retention
	// boundaries per tenant.
	Store = &Table{ID: 12, Name: "store", Conditional: true,
		Partition:  []Field{{"name", KindText}},
		Clustering: []Field{{"item", KindText}}}
	// Windows lists the windows in which a tenant has rows.
	Windows = &Table{ID: 13, Name: "windows", Remembered: true,
		Partition:  []Field{{"tenant", KindText}},
		Clustering: []Field{{"window", KindInt}}}
	// Tenants lists the tenants that have rows (list 0) and the tenants that have ever deleted series (list 1).
	Tenants = &Table{ID: 14, Name: "tenants",
		Partition:  []Field{{"list", KindInt}},
		Clustering: []Field{{"tenant", KindText}}}
	// Lease names the process that works on an item, with one row per item.
	Lease = &Table{ID: 11, Name: "lease", Conditional: true,
		Partition:  []Field{{"name", KindText}},
		Clustering: []Field{{"item", KindInt}}}
	// Defined contains the definitions of series in sealed blobs. Later blobs of the same stream depend on them.
	Defined = &Table{ID: 15, Name: "defined",
		Partition:  []Field{{"slot", KindInt}, {"partition", KindInt}},
		Clustering: []Field{{"writer", KindID}, {"seq", KindInt}}}
	// Tails contains the stream positions of a writer: the last seq of each of its streams. Other processes use them to
	// find new rows.
	Tails = &Table{ID: 16, Name: "tails", Converging: true,
		Partition:  []Field{{"writer", KindID}},
		Clustering: []Field{{"slot", KindInt}, {"partition", KindInt}}}
	// Processes lists the running processes (list 0), and the retention that each of them is configured with (list 2).
	// List 1 has one row, the observed uptime.
	Processes = &Table{ID: 17, Name: "processes", Converging: true,
		Partition:  []Field{{"list", KindInt}},
		Clustering: []Field{{"writer", KindID}}}
	// Shards contains the number of shards of each metric that has more than one shard.
	Shards = &Table{ID: 18, Name: "shards", Converging: true,
		Partition:  []Field{{"window", KindInt}, {"tenant", KindText}},
		Clustering: []Field{{"metric", KindText}}}
	// Deletes contains a tenant's tombstones until they are cleaned, and one row that lists the removed tombstones, see
	// format.Clearance.
	Deletes = &Table{ID: 10, Name: "delete",
		Partition:  []Field{{"tenant", KindText}},
		Clustering: []Field{{"id", KindID}}}
	// Held contains samples of replicas that aren't elected, until they are stored or deleted.
	Held = &Table{ID: 22, Name: "held",
		Partition:  []Field{{"tenant", KindText}, {"cluster", KindText}, {"era", KindInt}},
		Clustering: []Field{{"replica", KindText}, {"writer", KindID}, {"seq", KindInt}}}
	// Chosen contains the election of each cluster of replicas.
	Chosen = &Table{ID: 23, Name: "chosen", Conditional: true,
		Partition:  []Field{{"bucket", KindInt}},
		Clustering: []Field{{"tenant", KindText}, {"cluster", KindText}}}
)

var (
	rollupPartition = []Field{{"window", KindInt}, {"class", KindInt}, {"tenant", KindText},
		{"metric", KindText}, {"shard", KindInt}}
	rollupClustering = []Field{{"kind", KindInt}, {"series", KindID}, {"start", KindInt}}

	rollupPagesClustering = []Field{{"kind", KindInt}, {"bits", KindInt}, {"first", KindID},
		{"start", KindInt}, {"version", KindID}}
)

// Tables lists the tables that every engine has.
var Tables = []*Table{Stage, Staged, Sealed, Raw, R5m, R1h, Catalog, Metadata, Store, Windows, Tenants, Lease, Defined,
	Tails, Processes, Shards, Held, Chosen, Deletes, RawPages, R5mPages, R1hPages}
