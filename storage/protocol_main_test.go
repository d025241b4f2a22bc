package storage

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// TestMain makes sure that no test leaves a goroutine behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := cassandratest.Leaks(time.Minute); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
