// Package roundtrip holds tests only: what leaves a store by adapter/exporter comes back by adapter/importer as it was, for
// these two don't import each other.
package roundtrip
