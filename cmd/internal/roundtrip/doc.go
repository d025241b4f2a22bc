// Package roundtrip contains only tests. They check that samples that package adapter/exporter has exported are
// unchanged after package adapter/importer has imported them. The tests have their own package because these two
// packages don't import each other.
package roundtrip
