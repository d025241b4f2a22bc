// Package doctor turns facts about a cluster, a directory and the store in them into findings for an operator:
// each a condition, its consequence, and the remedy. It is pure, but for
// ReadDirectory: others collect the facts.
//
//	cassandra.Look ──► Cluster ──┐
//	                   Clocks  ──┤
//	inspect.Examine ─► Store   ──┼──► Sort ──► Write, WriteJSON
//	file system ─────► Directory ┘
package doctor
