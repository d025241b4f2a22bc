// Package relabeling applies rules of Prometheus' write_relabel_configs to what tenants send, before it is stored: rules drop
// series, and change their labels.
//
//	file ──► Parse ──► Table ──► Live ──► Batch, for each request of a tenant that has rules
//	                                        │ Lookup   a known series: one look-up, as without rules
//	                                        │          a dropped series: a second one, in the cache of dropped series
//	                                        └ Define   an unknown series: the rules run
//
// What a rule does depends on the labels as they were sent and on nothing else. So the store's alias of a series, which is
// made of those labels, leads to the series with the changed labels, and rules run once for each series rather than for
// each sample. Each list of rules has a space of aliases of its own (storage.Batch.UseAliases).
//
// A Trial computes the effect that rules would have on stored series.
package relabeling
