// Package cassandra keeps wide rows in an Apache Cassandra cluster, for any number of processes at once.
package cassandra
