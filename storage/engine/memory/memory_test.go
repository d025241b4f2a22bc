package memory_test

import (
	"testing"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

func TestConformance(t *testing.T) {
	enginetest.Run(t, func(testing.TB) engine.Engine { return memory.New() },
		enginetest.Without("Durable", "what is in memory ends with the process"))
}
