// Soak repeats the randomized tests with new seeds for a given time:
//
//	bin/tools/soak -for 1h -seed 7
//
// (or `make soak SOAK_FOR=1h SEED=7`). If CASSANDRA_HOSTS names a cluster, Soak also runs the tests that need
// Cassandra; docker/cassandra/with-node runs a command with this variable set. The seeds of all rounds are derived from
// the first seed, so a soak test can be repeated. When a test fails, Soak prints the command that reruns it with its
// seed, continues, and finally exits with status 1.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	s := soaking{out: os.Stdout, cluster: os.Getenv("CASSANDRA_HOSTS") != ""}
	flag.DurationVar(&s.limit, "for", 10*time.Minute, "how long to go on; a test that has begun is finished")
	flag.IntVar(
		&s.rounds, "rounds", 0, "how many rounds to make, however long they take; 0: as many as the time allows",
	)
	flag.IntVar(&s.share, "share", 1, "a round runs one of this many tests, drawn by the seed")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "the seed of the first round")
	flag.IntVar(&s.times, "times", 1, "how many times as much as in `make test` each test does")
	flag.StringVar(&s.only, "only", "", "only tests with this in their names")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "cassia-soak-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	s.binaries = dir
	failed, err := s.run(ctx)
	if removing := os.RemoveAll(filepath.Clean(dir)); err == nil {
		err = removing
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}
