// Package cassandra is the engine on an Apache Cassandra cluster (4.0 or later; tested with 5.0), for any number of
// processes at once. It is the only package that imports the driver, gocql. cmd/cassia opens it; the storage packages
// use it as an engine.Engine.
//
//	        Write              Scan            CompareAndSet
//	          │ a batch          │ a page         │ a row
//	          ▼                  ▼                ▼
//	request: a slot of Options.MaxInFlight, Options.Timeout, retries with back-off
//	          │ UNLOGGED BATCH   │ SELECT         │ INSERT/UPDATE … IF …
//	          ▼                  ▼                ▼
//	   a replica of the partition in the local data center, prepared statements
//
// # Rows
//
// A table of the engine is a CQL table with the same name, and each field of its key is a column: a bigint, a text, or
// for an ID a blob, so that operators can read keys in cqlsh. The last column, data, is the value. Texts must be UTF-8.
// A partition key that is a single text must not be empty, because Cassandra has no empty partition keys
// (engine.ErrBadKey). An empty value is written as an empty blob, because writing null would be a delete. `cassia
// schema` prints the CQL, see WriteSchema; policies has the reasons for the options of each table.
//
// # Writes
//
// A batch is in one partition of one table, so all of its statements are one mutation, which every replica applies
// atomically. Small batches of a partition that are written together are merged into one mutation. Each statement has
// its mutation's timestamp. So every write is idempotent. It is sent again until Options.Timeout if a connection breaks
// or if replicas are slow or missing, and sent to one more node if a node is silent for longer than Cassandra's write
// timeout. After that, Write returns engine.ErrUnavailable, and the rows may have been written or not.
//
// At the same timestamp a delete wins over a put, and of two puts the larger value wins. If both have a TTL, Cassandra
// prefers the one that expires later before it compares values. Expiry is counted in whole seconds. So if two processes
// write a row of a converging table with the same timestamp and different values, the one whose clock has ticked to the
// next second may win. Rows with different values should therefore have different timestamps.
//
// Batch.Expires is converted to a TTL when the batch is sent, by the clock of the cluster: a node's clock was read when
// the engine was opened, and is read again by each call of Clock. An expired batch is rejected. Drop does nothing,
// because rows expire, a whole file at a time.
//
// # Reads
//
// A scan is read in pages. The first page is small if rows may be large. Later pages have as many rows as make about a
// megabyte, and are fetched while the previous page is read. If a page is slow and there are other nodes, another node
// is queried as well. With a quorum for writes and reads, a scan sees all writes acknowledged before it, and with
// blocking read repair it never sees an older state than an earlier scan. A scan of more than one page isn't a
// snapshot: it may see rows that are written concurrently.
//
// Rows of conditional tables are read at SERIAL or LOCAL_SERIAL, which completes unfinished compare-and-set operations.
// CompareAndSet is sent again only if certainly no replica has received it.
//
// # The cluster
//
// Only nodes of one data center are used, because LOCAL_QUORUM in another data center is a different quorum. Open reads
// the cluster's state from the first host that responds, creates missing parts of the schema through the node with the
// smallest host ID (so that concurrent processes don't create them twice), and rejects configurations that can't work:
// an unknown data center, fewer nodes than the consistency level needs, a newer schema, tables of other programs. Every
// such error is one line with its remedy (ErrSettings).
//
// Any number of nodes may stop and restart. Requests fail with engine.ErrUnavailable while there are too few, and
// succeed some seconds after enough nodes are up again.
//
// With Cassandra's default, commitlog_sync: periodic, writes are acknowledged seconds before they are on a disk.
// Engine.Findings reports this; the caller logs it at start.
package cassandra
