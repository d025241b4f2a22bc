// Package enginetest is the conformance suite of engines. Run tests each promise in the comments of engine.Engine.
// Metamorphic runs long random histories, and compares every result with a plain model. The tests of each engine, and
// of the wrappers faultengine and paged, call it.
//
//	func TestConformance(t *testing.T) {
//		enginetest.Run(t, open, enginetest.WithReopen(reopen),
//			enginetest.Without("Drop", "rows expire by themselves"))
//	}
//
// A new engine must pass the suite before a store uses it. A promise that the suite doesn't test isn't guaranteed by
// the engines, and code of package storage that relies on it may lose samples. An engine may leave out a case only with
// a reason (Without).
package enginetest
