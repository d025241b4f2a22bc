// Package roundtrip has only tests: samples that are exported by adapter/exporter and imported by adapter/importer must
// be unchanged. It exists because these two packages don't import each other.
package roundtrip
