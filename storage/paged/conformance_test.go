package paged

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
	"github.com/cassia-db/cassia/storage/pebble"
)

// layered is an engine whose rows are written and read through pages.
type layered struct {
	engine.Engine
	rows *Rows
}

func layer(eng engine.Engine) engine.Engine {
	return &layered{eng, New(eng, Options{Least: 1})}
}

func (l *layered) Write(ctx context.Context, batches []engine.Batch) error {
	return l.rows.Write(ctx, batches)
}

func (l *layered) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return l.rows.Scan(ctx, r)
}

// TakesClear implements engine.Clearing.
func (l *layered) TakesClear() bool {
	c, ok := l.Engine.(engine.Clearing)
	return ok && c.TakesClear()
}

// TestConformance requires that Write and Scan satisfy the contract of engine.Engine.
func TestConformance(t *testing.T) {
	ends := enginetest.Without("Durable", "what is in memory ends with the process")
	t.Run("memory", func(t *testing.T) {
		enginetest.Run(t, func(t testing.TB) engine.Engine { return layer(engines["memory"](t)) }, ends)
	})
	t.Run("pebble", func(t *testing.T) {
		disks := map[engine.Engine]*pebble.CrashableFS{}
		open := func(t testing.TB, disk *pebble.CrashableFS) engine.Engine {
			e := layer(openPebbleOn(t, disk))
			disks[e] = disk
			return e
		}
		enginetest.Run(t,
			func(t testing.TB) engine.Engine { return open(t, pebble.NewCrashableFS()) },
			enginetest.WithReopen(func(t testing.TB, e engine.Engine) engine.Engine {
				require.NoError(t, e.Close())
				return open(t, disks[e])
			}),
			enginetest.Without("DeleteMindsTimestamps", "Pebble's deletes find what was written before them"))
	})
}
