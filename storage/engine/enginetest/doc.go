// Package enginetest is the one suite of tests that every engine runs: what engine.Engine's comments
// promise, as cases (Run), and as long histories compared with the plain model (Metamorphic).
//
//	func TestConformance(t *testing.T) {
//		enginetest.Run(t, open, enginetest.WithReopen(reopen),
//			enginetest.Without("Drop", "rows expire by themselves"))
//	}
package enginetest
