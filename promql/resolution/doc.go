// Package resolution chooses from which resolution a fragment of a query is answered: raw samples, or the buckets of
// rollups of 5 minutes or of an hour. The choice depends on the function, its windows, the mode that the query asks for and
// the horizons of retention, all of which are in a Request. The package reads no data; package promql carries the choice
// out.
package resolution
