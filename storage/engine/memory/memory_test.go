package memory_test

import (
	"testing"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

func TestConformance(t *testing.T) {
	enginetest.Run(t, func(testing.TB) engine.Engine { return memory.New() },
		enginetest.Without("Durable", "what is in memory ends with the process"))
}

func TestConformanceExpiring(t *testing.T) {
	now := func() time.Time { return time.Unix(1_777_636_800, 0) }
	enginetest.Run(t, func(testing.TB) engine.Engine { return memory.NewExpiring(now) },
		enginetest.Without("Durable", "what is in memory ends with the process"),
		enginetest.WithoutDrop("rows expire by themselves"))
}
