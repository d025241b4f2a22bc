package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/soak"
)

// soaked is a test that is worth repeating with other seeds and more rounds.
type soaked struct {
	// pkg is the folder of the test's package in the repository.
	pkg, test string
	// cassandra is set if the test needs a cluster in CASSANDRA_HOSTS.
	cassandra bool
}

// all contains the tests from which each round is drawn.
var all = []soaked{
	{pkg: "storage", test: "TestProtocol"},
	{pkg: "storage", test: "TestSharedProtocol"},
	{pkg: "storage", test: "TestConcurrent"},
	{pkg: "storage", test: "TestSharedConcurrent"},
	{pkg: "storage", test: "TestWaysOut"},
	{pkg: "storage", test: "TestPauses"},
	{pkg: "storage", test: "TestClassesModel"},
	{pkg: "storage/deletemodel", test: "TestHistories"},
	{pkg: "storage", test: "TestReplicasModel"},
	{pkg: "storage", test: "TestReplicasModelAhead"},
	{pkg: "storage", test: "TestReplicasModelDeletes"},
	{pkg: "storage/pebble", test: "TestMetamorphic"},
	{pkg: "storage/pebble", test: "TestBackupsThatAreCut"},
	{pkg: "storage/pebble", test: "TestRestoresThatAreCut"},
	{pkg: "storage/pebble/objects", test: "TestConcurrentBackups"},
	{pkg: "storage", test: "TestDamageAtRandomPlaces"},
	{pkg: "storage", test: "TestImportIsAsWrites"},
	{pkg: "storage", test: "TestImportIntoBusyStore"},
	{pkg: "storage", test: "TestBucketsAreWhatSamplesMake"},
	{pkg: "promql", test: "TestPlannerAnswersAsTheEvaluatorDoes"},
	{pkg: "promql", test: "TestRollupsAnswerAsRawSamplesDo"},
	{pkg: "promql", test: "TestExpiredAnswersAreWithinTheirInfos"},
	{pkg: "promql/bucketfn", test: "TestOverBucketsIsOverSamples"},
	{pkg: "promql/resolution", test: "TestChoiceProperties"},
	{pkg: "cmd/internal/e2e", test: "TestKilledAtAnyMoment"},
	{pkg: "cmd/internal/e2e", test: "TestImportKilled"},
	{pkg: "cmd/internal/e2e", test: "TestBackupsThatAreKilled"},
	{pkg: "cmd/internal/e2e", test: "TestBackupsIntoAFolderThatAreKilled"},
	{pkg: "cmd/internal/e2e", test: "TestSingleFileDamage"},
	{pkg: "cmd/internal/e2e", test: "TestMemoryStaysWithinItsBound"},
	{pkg: "storage/pebble", test: "TestMendEveryKindOfFile"},
	{pkg: "cmd/internal/backups", test: "TestServerThatIsNotWell"},
	{pkg: "cmd/internal/backups", test: "TestServerThatDies"},
	{pkg: "cmd/cassia", test: "TestContract"},
	{pkg: "cmd/cassia", test: "TestServerThatCannotWrite"},
	{pkg: "cmd/internal/e2e", test: "TestTwoOnCassandraKilledAtAnyMoment", cassandra: true},
	{pkg: "cmd/internal/e2e", test: "TestPausedAndBackLate", cassandra: true},
	{pkg: "cmd/internal/e2e", test: "TestCassandraNodesDie", cassandra: true},
	{pkg: "cmd/cassia", test: "TestPrometheusSuiteOnCassandra", cassandra: true},
	{pkg: "storage", test: "TestDeliveriesGiveTheSameBytesOnCassandra", cassandra: true},
	{pkg: "storage", test: "TestWaysOutOnCassandra", cassandra: true},
	{pkg: "storage", test: "TestWaysOutExpiring"},
	{pkg: "storage/cassandra", test: "TestMetamorphic", cassandra: true},
}

// maxOutput is the max size of a failed test's printed output in bytes.
const maxOutput = 16 << 10

// worthReading returns the output of a test without the lines of tests that started or passed. Long output is truncated
// in the middle.
func worthReading(out []byte) string {
	var kept []byte
	for line := range bytes.Lines(out) {
		if !bytes.HasPrefix(line, []byte("=== ")) && !bytes.Contains(line, []byte("--- PASS: ")) {
			kept = append(kept, line...)
		}
	}
	if len(kept) <= maxOutput {
		return string(kept)
	}
	return fmt.Sprintf(
		"%s\n[%d bytes left out]\n%s", kept[:maxOutput/2], len(kept)-maxOutput, kept[len(kept)-maxOutput/2:],
	)
}

// soaking is the state of a soak test.
type soaking struct {
	out      io.Writer
	limit    time.Duration
	rounds   int // if not 0, replaces the time limit
	share    int // a round runs one in share tests, selected by the seed; 0 and 1: all
	seed     uint64
	times    int
	only     string
	cluster  bool   // a Cassandra cluster is available
	binaries string // folder of the test binaries
}

// run runs rounds until the time limit or, if s.rounds is set, that number of rounds. It returns the number of failed
// tests.
func (s *soaking) run(ctx context.Context) (failed int, err error) {
	tests := s.chosen()
	if len(tests) == 0 {
		return 0, fmt.Errorf("no test has %q in its name", s.only)
	}
	if err := s.compile(ctx, tests); err != nil {
		return 0, err
	}
	began, seeds := time.Now(), rand.New(rand.NewPCG(s.seed, 0))
	seed, passed, rounds := s.seed, 0, 0
	how, over := s.limit.String(), func() bool { return time.Since(began) >= s.limit }
	if s.rounds > 0 {
		how, over = fmt.Sprintf("%d rounds", s.rounds), func() bool { return rounds == s.rounds }
	}
	fmt.Fprintf(s.out, "soak: %s of %d tests, each %d times as long as usual; -seed %d repeats it\n",
		how, len(tests), s.times, s.seed)
	for ; rounds == 0 || !over(); rounds++ {
		for i, test := range s.draw(tests, seeds) {
			if (rounds > 0 || i > 0) && over() {
				break
			}
			ok, err := s.one(ctx, test, seed)
			if err != nil {
				return failed, err
			}
			if ok {
				passed++
			} else {
				failed++
			}
		}
		seed = seeds.Uint64()
	}
	fmt.Fprintf(s.out, "soak: %d runs of tests passed and %d failed in %v and %d rounds\n",
		passed, failed, time.Since(began).Round(time.Second), rounds)
	return failed, nil
}

// draw returns the tests of a round in random order. It shuffles its argument first, so that every test is drawn with
// some seed, even in a soak test of a single round.
func (s *soaking) draw(tests []soaked, seeds *rand.Rand) []soaked {
	seeds.Shuffle(len(tests), func(i, j int) { tests[i], tests[j] = tests[j], tests[i] })
	share := max(s.share, 1)
	return tests[:(len(tests)+share-1)/share]
}

func (s *soaking) chosen() (tests []soaked) {
	for _, t := range all {
		if strings.Contains(t.test, s.only) && (!t.cassandra || s.cluster) {
			tests = append(tests, t)
		}
	}
	return tests
}

// binary returns the path of a package's compiled test binary.
func (s *soaking) binary(pkg string) string {
	return filepath.Join(s.binaries, strings.ReplaceAll(pkg, "/", "-")+".test")
}

func (s *soaking) compile(ctx context.Context, tests []soaked) error {
	for _, t := range tests {
		if _, err := os.Stat(s.binary(t.pkg)); err == nil {
			continue
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", s.binary(t.pkg), "./"+t.pkg)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("compiling the tests of %s: %w\n%s", t.pkg, err, out)
		}
	}
	return nil
}

// one runs a test with a seed, and prints the output if the test fails. An error means that the test couldn't be run,
// which ends the soak test.
func (s *soaking) one(ctx context.Context, t soaked, seed uint64) (passed bool, err error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, s.binary(t.pkg), "-test.count=1", "-test.run=^"+t.test+"$", "-test.v")
	cmd.Dir = t.pkg
	cmd.Env = append(
		os.Environ(), fmt.Sprintf("%s=%d", soak.SeedVariable, seed), fmt.Sprintf("%s=%d", soak.TimesVariable, s.times),
	)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	took := time.Since(began).Round(100 * time.Millisecond)
	var ended *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &ended):
		return false, err
	case err == nil && !bytes.Contains(out, []byte("--- PASS: "+t.test)):
		return false, fmt.Errorf("%s of %s didn't run, or skipped itself:\n%s", t.test, t.pkg, out)
	case err == nil:
		fmt.Fprintf(s.out, "ok    %-44s seed %d, %v\n", t.test, seed, took)
		return true, nil
	}
	fmt.Fprintf(s.out, "%s\nFAIL  %-44s seed %d, %v; repeat it with:\n      %s\n",
		worthReading(out), t.test, seed, took, soak.Command(t.pkg, t.test, seed, s.times))
	return false, nil
}
