// Package enginetest is the conformance suite of engines. Run tests each guarantee in the comments of engine.Engine.
// Metamorphic runs long random histories, and compares every result with a plain model. The tests of each engine, and
// of the wrappers faultengine and paged, call both.
//
//	func TestConformance(t *testing.T) {
//		enginetest.Run(t, open, enginetest.WithReopen(reopen),
//			enginetest.Without("Drop", "rows expire by themselves"))
//	}
//
// A new engine must pass the suite before a store uses it. A guarantee that the suite doesn't test may not hold, and
// code of package storage that relies on it may lose samples. An engine may exclude a test case only with a reason
// (Without).
package enginetest
