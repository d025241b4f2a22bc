// Package doctor turns facts about a cluster, a directory and the store in it into findings for an operator. A finding
// is a condition, its consequence and its remedy. The command cassia doctor and the page call it. The facts are
// collected by other packages; only ReadDirectory and Room read from the system, so the checks can be tested without a
// cluster.
//
//	cassandra.ReadFacts ─► Cluster ──┐
//	                       Clocks  ──┤
//	inspect.Examine ─────► Store   ──┼──► Sort ──► Write, WriteJSON
//	file system ─────────► Directory ┘
package doctor
