package deletemodel

// bringer writes the chunks of a seal or an import, and adds tasks that compute their rollups.
type bringer struct {
	*roller
	// deletes contains the tenant's deletes. New chunks name them and are exempt from them.
	deletes deletions
}

// isMarked reports whether a slot has commit records of raw rows. In a slot with commit records, chunks of the new
// samples may already be stored.
func (b *bringer) isMarked(slot int) bool {
	b.a.step("read marks of the slot")
	return b.w.phases[raw] < expired &&
		b.w.store.marks[raw].has(func(key markKey) bool { return key.tenant == b.tenant && key.slot == slot })
}

// bring writes the chunks of a slot. before is true if chunks of the same samples may already be stored.
func (b *bringer) bring(slot int, all content, before bool) bool {
	for series, samples := range all {
		if samples == 0 {
			continue
		}
		if b.finest > raw {
			b.add(rollupTask{series: series, slot: slot, added: samples})
			continue
		}
		t := rollupTask{series: series, slot: slot}
		if b.w.broken[listAfterWriting] {
			_, t.ahead = b.listChunks(series, slot)
		}
		named := b.deletes.about(series, slot).ids()
		if b.w.broken[nameDeletes] {
			named = 0
		}
		if before && !b.w.broken[subtractStored] {
			b.a.step("read stored chunks")
			samples = b.subtract(series, slot, samples, &named)
		}
		if samples != 0 && !b.write(&t, samples, named) {
			return false
		}
		b.add(t)
	}
	return true
}

// subtract removes the samples that stored chunks contain, and adds the deletes that these chunks name to named.
//
// Invariant: a new chunk never has the key of a cleaned chunk, because it names all deletes that the cleaned chunk
// names.
func (b *bringer) subtract(series, slot int, samples samples, named *ids) samples {
	ds := b.deletes.about(series, slot)
	found, _ := b.listChunks(series, slot)
	for _, c := range found {
		hiding := ds.applying(c.exempt)
		if b.w.broken[subtractOnlyVisible] {
			hiding = nil
		}
		samples &^= hiding.hide(c.samples)
		if !b.w.broken[nameDeletesOfStored] {
			*named |= c.exempt
		}
	}
	return samples
}

func (b *bringer) write(t *rollupTask, samples samples, named ids) bool {
	w, key := b.w, rawKey{t.series, t.slot, named, samples}
	if w.broken[hashCoversDeletes] {
		key.exempt = 0
	}
	t.own = append(t.own, key)
	stands := func() bool { return w.phases[raw] < expired && b.isInTime() }
	return b.a.writeIf("write a chunk", stands, func() {
		if w.phases[raw] < vanished {
			w.store.raw.put(key, 0, rawChunk{named, samples})
		}
	})
}
