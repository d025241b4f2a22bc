package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// checkStage checks the blobs of all slots. It also checks that readers read each slot that has blobs.
func (c *checker) checkStage() error {
	looked, err := c.slotsRead()
	if err != nil {
		return err
	}
	listed, err := c.slotsListed()
	if err != nil {
		return err
	}
	all := maps.Clone(looked)
	maps.Copy(all, listed)
	inOrder := func(a, b head.SlotPartition) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Partition, b.Partition))
	}
	for _, at := range slices.SortedFunc(maps.Keys(all), inOrder) {
		before := c.stats.Blobs
		if err := c.checkBlobs(at); err != nil {
			return err
		}
		if n := c.stats.Blobs - before; n > 0 && !looked[at] && c.isOverlooked(at) {
			c.report("stage: %s, partition %d: no query, seal or export reads its %d blobs, because "+
				"they are in a partition that the store doesn't have", c.slotName(at.Slot), at.Partition, n)
		}
	}
	return nil
}

// slotsRead returns the slot partitions in which readers read blobs.
func (c *checker) slotsRead() (map[head.SlotPartition]bool, error) {
	looked := map[head.SlotPartition]bool{}
	for p := range c.env.Period.Partitions() {
		slots, err := c.env.Waiting(c.ctx, p)
		if err != nil {
			return nil, err
		}
		for _, slot := range slots {
			looked[head.SlotPartition{Slot: slot, Partition: p}] = true
		}
	}
	return looked, nil
}

// slotsListed returns the slot partitions that have blobs according to the engine.
func (c *checker) slotsListed() (map[head.SlotPartition]bool, error) {
	listed := map[head.SlotPartition]bool{}
	damaged := func(d engine.Damage) { c.addMissed(&damage.DamagedRowsError{Table: engine.Stage, Err: d.Err}) }
	for key, err := range c.env.Engine.Partitions(c.ctx, engine.Stage, nil, damaged) {
		if err != nil {
			return nil, err
		}
		listed[head.SlotPartition{Slot: key[0].Int, Partition: int(key[1].Int)}] = true
	}
	return listed, nil
}

// isOverlooked reports whether at, a slot partition with blobs that no reader reads, may contain acknowledged blobs
// that aren't sealed. In a shared store this isn't the case if the partition exists: blobs of unlisted slots belong to
// failed commits or are already sealed, and Store.SealUnlisted seals these slots.
func (c *checker) isOverlooked(at head.SlotPartition) bool {
	return !c.env.Shared || at.Partition >= c.env.Period.Partitions()
}

// checkBlobs checks the blobs of a slot partition.
func (c *checker) checkBlobs(at head.SlotPartition) error {
	rows := engine.Range{Table: engine.Stage, Partition: format.StagePartition(at.Slot, at.Partition)}
	for row, err := range c.scan(rows) {
		if err != nil {
			return err
		}
		c.stats.Blobs++
		c.staged[at.Slot] = true
		r := format.StageRowOf(row)
		sink := &checkSink{c: c, slot: at.Slot}
		var reader format.BlobReader
		err := reader.Open(row.Value)
		if err == nil {
			err = reader.Walk(sink)
		}
		if err != nil {
			c.report("stage: %s, partition %d, writer %x, seq %d: %v",
				c.slotName(at.Slot), at.Partition, r.Writer, r.Seq, err)
		}
	}
	return nil
}

// checkSink checks the records of a blob.
type checkSink struct {
	c       *checker
	slot    int64
	builder labels.ScratchBuilder
}

func (k *checkSink) Define(_ uint32, _ string, ls labels.Labels) error {
	return k.c.env.CheckLabels(ls)
}

func (k *checkSink) Float(_ uint32, t, _ int64, _ uint64) error { return k.checkTime(t) }

func (k *checkSink) Histogram(_ uint32, t int64, encoded []byte) error {
	if _, err := chunk.ParseHistogram(encoded); err != nil {
		return err
	}
	return k.checkTime(t)
}

func (k *checkSink) Exemplar(_ uint32, t int64, encoded []byte) error {
	e, err := format.ParseExemplar(t, encoded, &k.builder)
	if err != nil {
		return err
	}
	if err := k.c.env.CheckExemplar(e.Labels); err != nil {
		return err
	}
	return k.checkTime(t)
}

func (k *checkSink) checkTime(t int64) error {
	if k.c.env.Period.SlotOf(t) != k.slot {
		return fmt.Errorf(
			"%w: a sample at %s doesn't belong to the slot", format.ErrMalformedBlob, format.FormatTime(t),
		)
	}
	return nil
}
