// Package cassandra keeps wide rows in an Apache Cassandra cluster (4.0 or later; 5.0 is what it is tested
// with), for any number of processes at once. It is the only package that imports the driver, gocql.
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
// A table of the engine's is a table of CQL with the same name, and a field of its key a column: a bigint,
// a text, or for an ID a blob, so that people can read keys in cqlsh. The last column, data, is the value.
// Texts must be UTF-8, and a partition key that is a single text mustn't be empty: Cassandra has no empty
// partition keys (engine.ErrBadKey). An empty value is written as an empty blob, for no value at all would
// be a delete. `cassia schema` prints the CQL, Schema returns it; policies gives the reason why each table is kept as
// it is.
//
// # Writes
//
// A batch is one partition of one table, so all of its statements are one mutation, which every replica
// applies as a whole. Small batches of a partition that are written at once are one mutation, too. Each statement has its mutation's timestamp. So every write can be sent again, and is,
// when a connection breaks or replicas are slow or missing, until Options.Timeout is over (to one more node at
// once when one stays silent for longer than Cassandra ever takes to answer a write); then Write returns
// engine.ErrUnavailable, and what it wrote may be there or not.
//
// At one timestamp a delete wins over a put, and of two puts the greater value. Where both have a time to
// live, Cassandra lets the one win that expires later, before it compares values: of two processes that
// write one row of a converging table with one timestamp and different values, the one whose clock ticked
// over wins. So such rows should have different timestamps if they have different values.
//
// Batch.Expires becomes a time to live when the batch is sent, by the clock of the cluster: a node's was read when the engine was opened, and is
// read again by each call of Clock. A batch that has expired is refused. Drop does nothing: rows
// expire by themselves, whole files at a time.
//
// # Reads
//
// A scan is read in pages. The first is small where rows may be large; the next ones are as many rows as
// make about a megabyte, and are fetched while the rows before are read. If a page doesn't come soon and
// there are other nodes, another one is asked as well. Where writes and reads take a quorum, a scan sees
// the writes acknowledged before it, and with blocking read repair it never sees less than one before it saw.
// A scan of more than one page isn't a snapshot: rows that are written meanwhile may be seen.
//
// Rows of conditional tables are read at SERIAL or LOCAL_SERIAL, which ends what others have begun.
// CompareAndSet itself is never sent twice unless surely no replica has heard of it.
//
// # The cluster
//
// Only nodes of one data center are talked to: another's LOCAL_QUORUM is another quorum. Open looks at the
// cluster through the first host that answers, creates missing parts of the schema through the node with the
// least host ID (so that several processes at once don't make it twice), and refuses what can't work: an
// unknown data center, fewer nodes than the consistency needs, a newer schema, tables that are someone
// else's. Every such error is one line with its remedy (ErrSettings).
//
// Nodes may come and go, all of them even: requests fail with engine.ErrUnavailable as long as too few are
// there, and work again some seconds after enough came back.
//
// Cassandra's own default, commitlog_sync: periodic, acknowledges writes seconds before they are on a disk.
// Engine.Findings reports it; the caller logs it at start.
package cassandra
