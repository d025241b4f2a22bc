package tidy

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharedName is an exception from TestTypeNamesAreUnique: a type name that multiple packages may declare.
type sharedName struct {
	// in lists the packages. If it is empty, any package may declare the name.
	in  string
	why string
}

// privateReason is the reason for names that were shared before this law existed. When you change such a type, rename
// it.
const privateReason = "unexported on both sides, and older than this law"

// sharedNames contains the exceptions from TestTypeNamesAreUnique, by type name.
var sharedNames = map[string]sharedName{
	"API":         {"adapter/jsonapi cmd/internal/promrig", "an HTTP API: the one that is served, and the one that tests ask"},
	"Batch":       {"adapter adapter/importer storage storage/engine", "what is written at once: by an adapter, an importer, the store, an engine"},
	"Bucket":      {"cmd/internal/s3 storage/pebble/objects", "objects by name, and the one on a real server that implements it"},
	"Cardinality": {"promql/api storage/counts", "the store's answer, and the function of the API that asks for it"},
	"Client":      {"adapter/importer/fetch adapter/importer/overhttp", "of a server that history is read from, and of one that it is sent to"},
	"Clock":       {"cmd/internal/doctor storage/engine", "of a machine: one that was read, and an engine that can be asked for one"},
	"Cluster":     {"storage/cassandra storage/cassandra/cassandratest", "of Cassandra: what Open finds, and the nodes that tests start"},
	"Difference":  {"adapter/importer storage/cassandra", "between what there is and what there should be: samples, schemas"},
	"Engine":      {why: "an implementation of storage/engine.Engine, its flags, and the engine of queries, which Prometheus calls so"},
	"Env":         {why: "the things that a package needs of its store, or its process"},
	"Evaluator":   {"adapter/jsonapi cmd/internal/ui promql/bucketfn", "of queries for the JSON API, of rules on the page, of functions over buckets"},
	"Finding":     {"cmd/internal/bench cmd/internal/doctor storage/cassandra", "what somebody should know who has looked: at samples, a cluster, a store"},
	"Format":      {"adapter/exporter adapter/importer/lines", "of text: one that is written, one that is read"},
	"HA":          {"adapter/remotewrite cmd/internal/config", "pairs of Prometheus: what handles them, and its flags"},
	"Head":        {"storage/head storage/page", "what is in memory of recent samples, and what stands before the values of a page"},
	"Info":        {"storage/chunk storage/rollup", "what the envelope of a chunk holds: of samples, of buckets"},
	"Key":         {"storage/engine storage/pebble/objects", "of a row, and of encryption"},
	"Keyspace":    {"adapter/importer/kairosdb storage/cassandra/kairosdb", "of KairosDB: what reads one, and what an import takes from it"},
	"Kind":        {"storage/engine storage/engine/faultengine storage/page", "of a field of keys, of an operation that fails, and of values in a page"},
	"Metadata":    {"adapter/remotewrite cmd/internal/config storage/format", "of metrics: what a sender says, what is stored, and the flags of where to ask"},
	"Op":          {"storage/engine storage/engine/faultengine", "what an engine is asked to do: a mutation, and a call that may fail"},
	"Options":     {why: "what a package is told when it starts: every package may have its own"},
	"Page":        {"cmd/internal/manual storage/page", "of the manual, and of values"},
	"Part":        {"storage/page storage/rollup", "of what is stored together: fields of a page, and a chunk in a long one"},
	"Plan":        {"adapter/importer downsample", "what there is to do: of an import, of downsampling"},
	"Point":       {"adapter/importer/kairosdb storage/cassandra/kairosdb", "of KairosDB, as it is stored and as it is imported"},
	"Process":     {"cmd/internal/promrig storage/membership", "a program that tests start, and what processes over one store tell of themselves"},
	"Progress":    {"adapter/exporter adapter/importer", "how far something has come: an export, an import"},
	"Range":       {"downsample storage/engine", "of times that a plan looks at, and of keys"},
	"Report":      {"adapter/importer cmd/internal/bench promql", "what something has done: an import, a load, queries"},
	"Result":      {"adapter/jsonapi cmd/internal/manual promql/bucketfn", "of a query, a search, a function"},
	"Row":         {"adapter/importer/kairosdb storage/cassandra/kairosdb storage/engine", "of a table: an engine's, KairosDB's and what is imported from it"},
	"Rows":        {"storage/ha storage/paged", "of a table, in packages that read and write them: of replicas, of pages"},
	"Rules":       {"adapter/relabeling cmd/internal/config", "of relabeling, and the flags of recording rules and alerts, which Prometheus calls so, too"},
	"Series":      {"cmd/internal/promrig storage storage/head", "a series in an answer that tests read, and in the head, which the store calls so, too"},
	"Server":      {"adapter/importer/overhttp cmd/internal/cassiatest cmd/internal/s3/s3test cmd/internal/server", "a server: Cassia's, those that tests start or ask, and the one that an import is sent to"},
	"Source":      {"adapter/importer adapter/importer/blocks adapter/importer/kairosdb adapter/importer/lines adapter/metadata promql/ruler", "of what is imported: the interface and its implementations; of rule files; of metadata"},
	"Stats":       {"adapter/exporter storage/head", "how much there is: of what was exported, and in the head"},
	"Status":      {"adapter/relabeling cmd/internal/backups downsample", "how something stands: rules of relabeling, backups, downsampling"},
	"Store":       {"cmd/internal/ui storage", "the store, and the part of it that the page shows"},
	"Table":       {"adapter/relabeling storage/engine storage/tenant", "of tenants' rules and limits, which files have; of an engine"},
	"answer":      {"cmd/tools/benchmarks/rollups promql/api", privateReason},
	"appender":    {"adapter adapter/otlp", privateReason},
	"blobCell":    {"storage/cassandra storage/cassandra/kairosdb", privateReason},
	"encoder":     {"adapter/exporter storage/rollup", privateReason},
	"group":       {"promql storage/query", privateReason},
	"loader":      {"promql/ruler storage", privateReason},
	"metrics":     {why: "a package's metrics: every package may have its own"},
	"part":        {"storage/query storage/rollup", privateReason},
	"reader":      {"promql storage/rollup", privateReason},
	"row":         {"storage/engine/enginetest storage/engine/memory", privateReason},
	"run":         {"adapter/exporter downsample storage/chunk storage/query storage/rollup", privateReason},
	"settings":    {"cmd/tools/benchmarks/rollups storage", privateReason},
	"shape":       {"cmd/internal/bench cmd/tools/benchmarks/compare", privateReason},
	"source":      {"adapter/exporter storage/query", privateReason},
}

// packageTypes holds the types that a package declares.
type packageTypes struct {
	dir string
	// types contains the names of the types, and imports contains the packages of this module that the package imports.
	types, imports map[string]bool
}

// typesByPackage returns the types that packages declare outside of tests, by the packages' folders.
func typesByPackage(t *testing.T) map[string]*packageTypes {
	all := map[string]*packageTypes{}
	for _, f := range goFiles(t) {
		if f.isTest || f.isGenerated {
			continue
		}
		d := all[f.dir()]
		if d == nil {
			d = &packageTypes{dir: f.dir(), types: map[string]bool{}, imports: map[string]bool{}}
			all[f.dir()] = d
		}
		for _, imported := range f.imports() {
			if to, ours := strings.CutPrefix(imported, modulePath); ours {
				d.imports[to] = true
			}
		}
		for _, decl := range f.ast.Decls {
			if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				for _, spec := range g.Specs {
					d.types[spec.(*ast.TypeSpec).Name.Name] = true
				}
			}
		}
	}
	return all
}

// canMeet reports whether code can refer to a type name of both packages: both export the name, or one package imports
// the other.
func canMeet(name string, a, b *packageTypes) bool {
	return token.IsExported(name) || a.imports[b.dir] || b.imports[a.dir]
}

// TestTypeNamesAreUnique checks that two packages don't declare types with the same name if both export the name or one
// imports the other. A name should have one meaning.
func TestTypeNamesAreUnique(t *testing.T) {
	all := typesByPackage(t)
	found := map[string]map[string]bool{}
	for _, a := range all {
		for name := range a.types {
			for _, b := range all {
				if a.dir < b.dir && b.types[name] && canMeet(name, a, b) {
					if found[name] == nil {
						found[name] = map[string]bool{}
					}
					found[name][a.dir], found[name][b.dir] = true, true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		in := strings.Join(slices.Sorted(maps.Keys(found[name])), " ")
		exception, ok := sharedNames[name]
		if !ok || exception.in != "" && exception.in != in {
			t.Errorf(
				"%s is a type of %s: one word means one thing, so rename one of them, or change the exceptions in types_test.go",
				name, in,
			)
		}
	}
	for name := range sharedNames {
		require.Contains(t, found, name, "its packages no longer share the name: remove the exception")
	}
}
