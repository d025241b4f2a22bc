// Package relabeling applies rules of Prometheus' write_relabel_configs to samples before they are stored: rules drop
// series and change their labels. All ingest protocols use it through adapter.Shape. cmd/cassia loads the file of
// rules.
//
//	file ──► Parse ──► Table ──► Live ──► batch, for each request of a tenant with rules
//	                                        │ Lookup   a known series: one lookup, as without rules
//	                                        │          a dropped series: a second lookup, in the cache of dropped series
//	                                        └ Define   an unknown series: the rules run
//
// The result of the rules depends only on the labels as sent. The store's alias of a series is made of these labels, so
// the alias can refer to the series with the changed labels, and rules run once per series instead of once per sample.
// Each list of rules has its own space of aliases (storage.Batch.UseAliases). Otherwise, after a change of the rules,
// samples would be added to series that former rules have made.
//
// A Trial computes the effect that rules would have on stored series.
package relabeling
