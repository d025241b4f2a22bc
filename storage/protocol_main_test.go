package storage

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes sure that no test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
