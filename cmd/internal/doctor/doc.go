// Package doctor turns facts about a cluster, a directory and a store into findings for an operator. A finding consists
// of a condition, its consequence and its remedy. The command cassia doctor and the web interface use it. Other
// packages collect the facts; only ReadDirectory and FreeSpace read from the system. The checks can therefore be tested
// without a cluster.
//
//	cassandra.ReadFacts ──► CheckCluster ──┐
//	                        CheckClocks  ──┤
//	inspect.ExamineStore ─► CheckStore   ──┼──► SortFindings ──► Write, WriteJSON
//	downsample.Loop ──────► CheckWork    ──┤
//	file system ──────────► CheckDirectory ┘
package doctor
