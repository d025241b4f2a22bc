package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// Opener opens an empty engine. The suite closes it.
type Opener func(t testing.TB) engine.Engine

// Reopener closes an engine and opens another one on the same data.
type Reopener func(t testing.TB, e engine.Engine) engine.Engine

// Option changes the tests that Run runs.
type Option func(*suite)

// Without excludes a test case. The reason is only documentation.
func Without(name, reason string) Option {
	return func(s *suite) { s.without[name] = reason }
}

// WithReopen sets the function that closes an engine and opens it again. Without it, durability isn't tested.
func WithReopen(reopen Reopener) Option {
	return func(s *suite) { s.reopen = reopen }
}

// WithoutDrop is for engines whose rows expire, so that Drop does nothing. It excludes the tests of Drop.
func WithoutDrop(reason string) Option {
	return func(s *suite) {
		s.noDrop = true
		for _, name := range []string{"Drop", "DropByText", "DropAll", "WriteAfterDrop"} {
			s.without[name] = reason
		}
	}
}

type suite struct {
	open    Opener
	reopen  Reopener
	noDrop  bool
	without map[string]string
}

// testCase tests one guarantee of engines. run gets an empty engine, which is closed afterwards.
type testCase struct {
	name string
	run  func(t *testing.T, e engine.Engine)
}

// cases returns the test cases that need only an open engine.
func cases() []testCase {
	return []testCase{
		{"Order", testOrder},
		{"PartitionsApart", testPartitionsApart},
		{"TablesApart", testTablesApart},
		{"Bounds", testBounds},
		{"LimitAndKeysOnly", testLimitAndKeysOnly},
		{"ScanNothing", testScanNothing},
		{"ScanAgain", testScanAgain},
		{"ScanWhileWriting", testScanWhileWriting},
		{"ScanCancelled", testScanCancelled},
		{"ManyRows", testManyRows},
		{"WriteNothing", testWriteNothing},
		{"WriteAgain", testWriteAgain},
		{"WriteManyBatches", testWriteManyBatches},
		{"WriteKeepsNothing", testWriteKeepsNothing},
		{"WriteCancelled", testWriteCancelled},
		{"TakenBackAfterCancel", testTakenBackAfterCancel},
		{"EmptyValue", testEmptyValue},
		{"Delete", testDelete},
		{"DeleteRange", testDeleteRange},
		{"DeleteMindsTimestamps", testDeleteMindsTimestamps},
		{"Clear", testClear},
		{"ClearBeforeOthers", testClearBeforeOthers},
		{"ClearIsAtomic", testClearIsAtomic},
		{"ClearRefused", testClearRefused},
		{"Converging", testConverging},
		{"ConvergingInOneBatch", testConvergingInOneBatch},
		{"BatchIsAtomic", testBatchIsAtomic},
		{"LargestAllowed", testLargestAllowed},
		{"Refused", testRefused},
		{"RefusedLeavesNothing", testRefusedLeavesNothing},
		{"BadRange", testBadRange},
		{"CompareAndSet", testCompareAndSet},
		{"CompareAndSetAtOnce", testCompareAndSetAtOnce},
		{"Drop", testDrop},
		{"DropByText", testDropByText},
		{"DropAll", testDropAll},
		{"WriteAfterDrop", testWriteAfterDrop},
		{"AtOnce", testAtOnce},
		{"Versions", testVersions},
		{"VersionsAtOnce", testVersionsAtOnce},
		{"Prober", testProber},
		{"Partitions", testPartitions},
		{"PartitionsRefused", testPartitionsRefused},
		{"SeveralScanner", testSeveralScanner},
	}
}

// Run runs the conformance suite.
func Run(t *testing.T, open Opener, options ...Option) {
	s := &suite{open: open, without: map[string]string{}}
	for _, option := range options {
		option(s)
	}
	known := map[string]bool{"Durable": true, "Closed": true, "CloseAtOnce": true}
	for _, c := range cases() {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			s.skip(t, c.name)
			e := s.open(t)
			c.run(t, e)
			require.NoError(t, e.Close())
		})
	}
	t.Run("Durable", func(t *testing.T) {
		s.skip(t, "Durable")
		if s.reopen == nil {
			t.Skip("no way to open the engine again was given")
		}
		testDurable(t, s.open(t), s.reopen, !s.noDrop)
	})
	t.Run("Closed", func(t *testing.T) {
		s.skip(t, "Closed")
		testClosed(t, s.open(t))
	})
	t.Run("CloseAtOnce", func(t *testing.T) {
		s.skip(t, "CloseAtOnce")
		testCloseAtOnce(t, s.open(t))
	})
	for name := range s.without {
		require.True(t, known[name], "there is no case %s to leave out", name)
	}
}

func (s *suite) skip(t *testing.T, name string) {
	if reason := s.without[name]; reason != "" {
		t.Skip(reason)
	}
}
