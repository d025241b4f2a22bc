package head

import (
	"hash/maphash"
	"iter"

	"github.com/cassia-db/cassia/storage/format"
)

// AliasHash identifies an alias by 128 bits of hash (design/writing.md). The second half can't be predicted outside of
// this process, so tables use that half.
type AliasHash [2]uint64

func (h AliasHash) shortHash() uint32 { return uint32(h[1] >> 32) }

// aliasTable finds series by alias. Readers take no lock, because every series of every request is looked up here.
// Writers must hold the tenant's lock.
type aliasTable struct {
	first  table[Series] // by Series.hash: most series have only one alias
	others table[otherAlias]
}

// otherAlias is an alias of a series other than its first.
type otherAlias struct {
	hash   AliasHash
	series *Series
}

// find returns the series with an alias, or nil.
func (t *aliasTable) find(hash AliasHash) *Series {
	if s := t.first.find(hash.shortHash(), func(s *Series) bool { return s.hash == hash }); s != nil {
		return s
	}
	if a := t.others.find(hash.shortHash(), func(a *otherAlias) bool { return a.hash == hash }); a != nil {
		return a.series
	}
	return nil
}

// add adds an alias of s, which must not be in the table.
func (t *aliasTable) add(hash AliasHash, s *Series) {
	if s.hash == hash {
		t.first.add(hash.shortHash(), s)
	} else {
		t.others.add(hash.shortHash(), &otherAlias{hash, s})
	}
}

func (t *aliasTable) clear() {
	t.first.clear()
	t.others.clear()
}

// remove removes the aliases of the series for which gone reports true.
func (t *aliasTable) remove(gone func(*Series) bool) {
	t.first.remove(gone)
	t.others.remove(func(a *otherAlias) bool { return gone(a.series) })
}

// seriesByID finds the series of a tenant by id. The tenant's lock guards it.
type seriesByID struct{ table table[Series] }

// idSeed prevents senders from choosing labels whose ids collide in the table.
var idSeed = maphash.MakeSeed()

func shortHashOf(id format.SeriesID) uint32 { return uint32(maphash.Bytes(idSeed, id[:]) >> 32) }

// find returns the series with an id, or nil if the table doesn't contain it.
func (t *seriesByID) find(id format.SeriesID) *Series {
	return t.table.find(shortHashOf(id), func(s *Series) bool { return s.id == id })
}

// add adds a series that isn't in the table.
func (t *seriesByID) add(s *Series) { t.table.add(shortHashOf(s.id), s) }

// remove removes the series for which gone reports true.
func (t *seriesByID) remove(gone func(*Series) bool) { t.table.remove(gone) }

func (t *seriesByID) len() int               { return t.table.used }
func (t *seriesByID) all() iter.Seq[*Series] { return t.table.all() }
