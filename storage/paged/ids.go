package paged

import (
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// ids are the ids of a labels page, one after the other, by position.
type ids string

func (x ids) len() int        { return len(x) / engine.IDLen }
func (x ids) at(i int) string { return string(x[i*engine.IDLen : (i+1)*engine.IDLen]) }

// identifier computes ids of series from values of labels rows.
type identifier struct {
	set []byte
}

func (x *identifier) id(value []byte, metric string) (format.SeriesID, error) {
	var err error
	if x.set, err = format.AppendSeriesSetOfRow(x.set[:0], value, metric); err != nil {
		return format.SeriesID{}, err
	}
	return format.SeriesIDOfSet(x.set), nil
}

// idsOf computes the ids of a labels page. It returns engine.ErrCorrupt if it can't be read.
func idsOf(p *page.Page, metric string) (ids, error) {
	var x identifier
	var value []byte
	var all strings.Builder
	all.Grow(p.Len() * engine.IDLen)
	for i := range p.Len() {
		var err error
		if value, err = p.AppendValue(value[:0], i); err != nil {
			return "", fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
		}
		id, err := x.id(value, metric)
		if err != nil {
			return "", fmt.Errorf("%w: entry %d: %w", engine.ErrCorrupt, i, err)
		}
		all.Write(id[:])
	}
	return ids(all.String()), nil
}

// labelsKey names a labels page, or a page that refers to one: a version is the hash of a page's value, which lacks the metric's name.
type labelsKey struct{ metric, version string }

func (k labelsKey) clone() labelsKey {
	return labelsKey{strings.Clone(k.metric), strings.Clone(k.version)}
}

// size returns what an entry of a cache takes with a value of so many bytes.
func (k labelsKey) size(value int) int64 {
	return int64(len(k.metric)+len(k.version)+value) + cachedBytes
}

// cachedBytes is about what an entry of a cache takes besides texts.
const cachedBytes = 200

// keepIDs keeps the ids of a labels page for readers.
func (r *Rows) keepIDs(of labelsKey, found ids) { r.ids.add(of.clone(), found, of.size(len(found))) }
