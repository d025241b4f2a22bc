// Package cassandratest gives tests and benchmarks a real Apache Cassandra.
//
//	Hosts(t)            the one node that all test packages of a run share; `make test` starts it
//	StartCluster(t, 3)  nodes of one's own, to be killed, paused and revived
//
// Both skip the test where Cassandra can't be had, and log what would bring it. The nodes themselves are run by
// docker/cassandra/local; a cluster lives in a temporary folder, on ports that were free, and ends with the test,
// or, if the whole test process is killed, a second later.
//
// The package doesn't depend on Cassia's tables; it drops the keyspace that a test made, and runs the CQL that a test
// gives it.
package cassandratest
