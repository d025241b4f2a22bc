package cassandra

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
)

func reopen(t testing.TB, e engine.Engine) engine.Engine {
	before := e.(*apart)
	require.NoError(t, before.Close())
	return &apart{Engine: open(t, testOptions(t)), by: before.by, prefix: before.prefix}
}

func TestConformance(t *testing.T) {
	testHosts(t)
	t.Parallel()
	enginetest.Run(t,
		func(t testing.TB) engine.Engine { return openApart(t) },
		enginetest.WithReopen(reopen),
		enginetest.WithoutDrop("rows expire by themselves"))
}
