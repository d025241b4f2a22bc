// Package cassandratest provides a real Apache Cassandra to tests and benchmarks.
//
//	Hosts(t)            the node that all test packages of a run share; `make test` starts it
//	StartCluster(t, 3)  a cluster for one test, whose nodes the test may kill, pause and revive
//
// Both skip the test if Cassandra isn't available, and log how to install it. docker/cassandra/local runs the nodes. A
// cluster has its data in a temporary folder and listens on free ports. It is stopped when the test ends or, if the
// test process is killed, a second later.
//
// The package doesn't depend on Cassia's tables: it runs the CQL that a test passes to it, and drops the test's
// keyspace.
package cassandratest
