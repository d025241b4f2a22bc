package memory_test

import (
	"testing"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

func TestConformance(t *testing.T) {
	ends := enginetest.Without("Durable", "what is in memory ends with the process")
	t.Run("lasting", func(t *testing.T) {
		enginetest.Run(t, func(testing.TB) engine.Engine { return memory.New() }, ends)
	})
	t.Run("expiring", func(t *testing.T) {
		now := func() time.Time { return time.Unix(1_777_636_800, 0) }
		enginetest.Run(t, func(testing.TB) engine.Engine { return memory.NewExpiring(now) },
			ends, enginetest.WithoutDrop("rows expire by themselves"))
	})
}
