// Package enginetest is the conformance suite of engines. Run tests each guarantee in the comments of engine.Engine.
// Metamorphic runs long random histories, and compares every result with a plain model. The tests of Pebble and
// Cassandra call both. The tests of package memory and of the wrappers faultengine and paged call Run.
//
//	func TestConformance(t *testing.T) {
//		enginetest.Run(t, open, enginetest.WithReopen(reopen),
//			enginetest.WithoutDrop("rows expire by themselves"))
//	}
//
// A new engine must pass the suite before a store uses it. A guarantee that the suite doesn't test may not hold, and
// code of package storage that relies on it may lose samples. An engine may exclude a test case only with a reason
// (Without).
//
// An engine may also implement the optional interfaces in engine.go, such as Versioned and Prober; a store also works
// on an engine without them. In tests, storagetest.Open opens a store on any engine. A process selects its engine in
// cmd/internal/config/engine.go and opens it in cmd/cassia/engine.go.
package enginetest
