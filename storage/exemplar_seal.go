package storage

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// exemplars adds the rows of a series' exemplars, but for those that are sealed already. They stand beside the
// series' labels, which the caller adds.
func (x *sealer) exemplars(c *collected) error {
	var list []storedExemplar
	for st := range c.strands.all() {
		if x := st.exemplars(); x != nil {
			list = append(list, x.list...)
		}
	}
	if len(list) == 0 {
		return nil
	}
	list = keepExemplars(list)
	named := x.deletesOf(c.series).ids()
	if x.again {
		have, err := x.sealedExemplars(c.series, &named)
		if err != nil {
			return err
		}
		list = missingExemplars(list, have)
	}
	at := x.into[rollup.Raw]
	for len(list) > 0 {
		n, bytes := 0, 0
		for n < len(list) && bytes < maxExemplarRow {
			bytes += len(list[n].data)
			n++
		}
		value := appendRaw(nil, rawChunk{exempt: named, data: appendExemplars(nil, list[:n])})
		sum := sha256.Sum256(value)
		x.put(c, rollup.Raw, at.end*1000, exemplarsKey(c.series.id.String(), at.start, string(sum[:engine.IDLen])), value)
		x.stats.Exemplars += n
		list = list[n:]
	}
	return nil
}

// sealedExemplars reads what isn't deleted of the slot's sealed exemplars of a series, and the deletes that they name.
func (x *sealer) sealedExemplars(s *Series, named *exempt) (have []storedExemplar, err error) {
	if err := x.ask(s); err != nil {
		return nil, err
	}
	err = x.eachRow(kindExemplars, s, x.shards, false, func(row engine.Row) error {
		// What is corrupt, whoever reads it names; what comes now is sealed beside it.
		list, c, _ := openExemplars(slices.Clone(row.Value), x.deletesOf(s))
		have, *named = append(have, list...), named.union(c.exempt)
		return nil
	})
	return have, err
}

// missingExemplars returns those of list that aren't in have and are kept of both.
func missingExemplars(list, have []storedExemplar) (missing []storedExemplar) {
	all := keepExemplars(slices.Concat(list, have))
	slices.SortFunc(have, storedExemplar.compare)
	for _, e := range list {
		_, kept := slices.BinarySearchFunc(all, e, storedExemplar.compare)
		if _, known := slices.BinarySearchFunc(have, e, storedExemplar.compare); kept && !known {
			missing = append(missing, e)
		}
	}
	return missing
}

// exemplars checks a row of exemplars.
func (c *checker) exemplars(window int64, row engine.Row, at func(string, ...any)) {
	list, raw, err := openExemplars(row.Value, nil)
	if sum := sha256.Sum256(row.Value); string(sum[:engine.IDLen]) != row.Clustering[3].Text && !raw.cleaned {
		at("the version is not the hash of the exemplars")
	}
	if err == nil && len(list) == 0 && raw.cleaned {
		return
	}
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%w: a row without any", errBadExemplar)
	}
	if err != nil {
		at("%v", err)
		return
	}
	c.stats.Exemplars += len(list)
	for i, e := range list {
		if i > 0 && list[i-1].compare(e) >= 0 {
			at("exemplars out of order")
		}
		if _, err := parseExemplar(e.t, e.data, &c.builder); err != nil {
			at("%v", err)
		}
	}
	slot := c.s.period.slotOf(list[0].t)
	if c.s.period.slotOf(list[len(list)-1].t) != slot || c.s.period.slotStart(slot) != row.Clustering[1].Int || c.s.period.windowOf(slot) != window {
		at("exemplars from %d to %d don't belong there", list[0].t, list[len(list)-1].t)
	}
}
