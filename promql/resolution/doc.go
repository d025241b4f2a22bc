// Package resolution chooses the resolution from which a fragment of a query is computed: raw samples, or rollup
// buckets of 5 minutes or 1 hour. The choice depends on the function, its windows, the mode of the query and the
// retention boundaries. A Request holds these inputs. The package reads no data; package promql evaluates the chosen
// segments.
package resolution
