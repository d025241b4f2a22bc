package counts

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// seriesWalk visits the series of a window, each once. One has labels in several places if its metric got more shards, or its class changed.
//
//	metric ─► stretch of ids ─► place ─► rows of labels, in the order of ids
type seriesWalk struct {
	tenant  string
	window  int64
	classes []int64 // those whose rows are all there
	// scan yields the rows of a partition.
	scan func(context.Context, engine.Range, func(engine.Row) error) error
	// between is called between places.
	between func()
}

// stateOf returns which state a window is in for whoever counts its series: of its marks and of the classes that are left out. 0: it has no marks.
func stateOf(version, others uint64) uint64 {
	if version == 0 || others == 0 {
		return version
	}
	b := binary.LittleEndian.AppendUint64(nil, version)
	return max(1, xxhash.Sum64(binary.LittleEndian.AppendUint64(b, others)))
}

// stretchShards is how many shards of a metric are looked through at once: the ids of their series are held.
const stretchShards = 32

// stretches returns in how many parts the ids of a metric are looked through, a power of two up to 256.
func stretches(shards int64) int { return int(max(1, shards/stretchShards)) }

// each calls row with the labels of the metric's series in one of n stretches of ids, each once, and returns their ids, in order. Rows are valid during
// the call.
func (w *seriesWalk) each(ctx context.Context, m MetricShards, stretch, n int, keysOnly bool, row func(engine.Row) error) (ids []format.SeriesID, err error) {
	var run []format.SeriesID // those that a place adds
	for _, class := range w.classes {
		for shard := range m.Shards {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			run = run[:0]
			next, rows := 0, w.rows(m.Name, format.ClassShardOf(class, shard), stretch, n, keysOnly)
			field := format.SeriesField(format.ResolutionOf(w.window))
			err := w.scan(ctx, rows, func(r engine.Row) error {
				var id format.SeriesID
				copy(id[:], r.Clustering[field].Text)
				for next < len(ids) && bytes.Compare(ids[next][:], id[:]) < 0 {
					next++
				}
				if next < len(ids) && ids[next] == id {
					return nil
				}
				run = append(run, id)
				if len(run)%cancelEvery == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				return row(r)
			})
			if err != nil {
				return nil, err
			}
			ids = mergeIDs(ids, run)
			w.between()
		}
	}
	return ids, nil
}

// rows are those of labels in a place, in a stretch of ids.
func (w *seriesWalk) rows(metric string, at format.ClassShard, stretch, n int, keysOnly bool) engine.Range {
	res := format.ResolutionOf(w.window)
	rows := engine.Range{
		Table: format.TableOf(res), Partition: format.SeriesPartition(w.window, w.tenant, metric, at),
		From: engine.Key{engine.Int(format.KindLabels)}, To: engine.Key{engine.Int(format.KindLabels)}, KeysOnly: keysOnly,
	}
	if n > 1 {
		width := 256 / n
		first, last := format.SeriesID{byte(stretch * width)}, format.SeriesID(bytes.Repeat([]byte{0xff}, engine.IDLen))
		last[0] = byte((stretch+1)*width - 1)
		fields := format.SeriesField(res) + 1
		rows.From, rows.To = format.LabelsKey(res, first.String())[:fields], format.LabelsKey(res, last.String())[:fields]
	}
	return rows
}

// mergeIDs adds ids to others; all are in order, and none is in both.
func mergeIDs(ids, more []format.SeriesID) []format.SeriesID {
	i, j := len(ids)-1, len(more)-1
	ids = append(ids, more...)
	for at := len(ids) - 1; i >= 0 && j >= 0; at-- {
		if bytes.Compare(ids[i][:], more[j][:]) > 0 {
			ids[at] = ids[i]
			i--
		} else {
			ids[at] = more[j]
			j--
		}
	}
	if j >= 0 {
		copy(ids, more[:j+1])
	}
	return ids
}

// inBoth returns how many of the ids, which are in order, are in both lists.
func inBoth(a, b []format.SeriesID) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch c := bytes.Compare(a[0][:], b[0][:]); {
		case c == 0:
			n++
			a, b = a[1:], b[1:]
		case c < 0:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return n
}

// metricList are the metrics of a window, sorted by name.
type metricList []MetricShards

// shardsOf returns how many shards a metric has; 0: it isn't among them.
func (m metricList) shardsOf(name string) int64 {
	i, ok := slices.BinarySearchFunc(m, name, func(m MetricShards, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return 0
	}
	return m[i].Shards
}

// all calls row with the labels of all of a metric's series, each once. Rows are valid during the call.
func (w *seriesWalk) all(ctx context.Context, m MetricShards, keysOnly bool, row func(engine.Row) error) error {
	n := stretches(m.Shards)
	for stretch := range n {
		if _, err := w.each(ctx, m, stretch, n, keysOnly, row); err != nil {
			return err
		}
	}
	return nil
}
