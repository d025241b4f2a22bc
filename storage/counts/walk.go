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

// seriesWalk visits each series of a window once. A series may have labels rows in several places, if the number of
// shards of its metric has grown or if its class changed.
//
//	metric ─► stretch of ids ─► place ─► rows of labels, in the order of ids
type seriesWalk struct {
	tenant  string
	window  int64
	classes []int64 // the classes without missing rows
	// scan reads the rows of a partition.
	scan func(context.Context, engine.Range, func(engine.Row) error) error
	// between is called between places.
	between func()
}

// stateOf returns a fingerprint of a window, which changes when the number of its series may change. It combines the
// version of the window's commit records with others, a hash of the classes that aren't counted. It is 0 if there are no
// commit records.
func stateOf(version, others uint64) uint64 {
	if version == 0 || others == 0 {
		return version
	}
	b := binary.LittleEndian.AppendUint64(nil, version)
	return max(1, xxhash.Sum64(binary.LittleEndian.AppendUint64(b, others)))
}

// stretchShards determines the size of a stretch: the ids of about this many shards of a metric are in memory together.
const stretchShards = 32

// countStretches returns the number of parts in which the ids of a metric are visited. It is a power of two up to 256.
func countStretches(shards int64) int { return int(max(1, shards/stretchShards)) }

// each calls row once for each of the metric's series in one of n stretches of ids, with the series' labels row. It
// returns the ids of these series in order. The row is valid only during the call.
func (w *seriesWalk) each(
	ctx context.Context, m MetricShards, stretch, n int, keysOnly bool, row func(engine.Row) error,
) (ids []format.SeriesID, err error) {
	var run []format.SeriesID // new ids in a place
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

// rows returns the range of a place's labels rows in a stretch of ids.
func (w *seriesWalk) rows(metric string, at format.ClassShard, stretch, n int, keysOnly bool) engine.Range {
	res := format.ResolutionOf(w.window)
	rows := engine.Range{
		Table: format.TableOf(res), Partition: format.SeriesPartition(w.window, w.tenant, metric, at),
		From: engine.Key{engine.Int(format.KindLabels)}, To: engine.Key{engine.Int(format.KindLabels)},
		KeysOnly: keysOnly,
	}
	if n > 1 {
		width := 256 / n
		first, last := format.SeriesID{byte(stretch * width)}, format.SeriesID(bytes.Repeat([]byte{0xff}, engine.IDLen))
		last[0] = byte((stretch+1)*width - 1)
		fields := format.SeriesField(res) + 1
		rows.From = format.LabelsKey(res, first.String())[:fields]
		rows.To = format.LabelsKey(res, last.String())[:fields]
	}
	return rows
}

// mergeIDs merges more into ids. Both must be sorted and have no common ids.
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

// countCommon returns the number of ids that are in both sorted lists.
func countCommon(a, b []format.SeriesID) (n int) {
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

// metricList contains the metrics of a window, sorted by name.
type metricList []MetricShards

// shardsOf returns the number of shards of a metric, or 0 if the list doesn't contain the metric.
func (m metricList) shardsOf(name string) int64 {
	i, ok := slices.BinarySearchFunc(m, name, func(m MetricShards, name string) int {
		return strings.Compare(m.Name, name)
	})
	if !ok {
		return 0
	}
	return m[i].Shards
}

// all calls row once for each of a metric's series, with the series' labels row. The row is valid only during the call.
func (w *seriesWalk) all(ctx context.Context, m MetricShards, keysOnly bool, row func(engine.Row) error) error {
	n := countStretches(m.Shards)
	for stretch := range n {
		if _, err := w.each(ctx, m, stretch, n, keysOnly, row); err != nil {
			return err
		}
	}
	return nil
}
