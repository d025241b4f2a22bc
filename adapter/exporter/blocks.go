package exporter

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/query"
)

// blockWidths are the widths of Prometheus' blocks up to a day, in milliseconds: the width of blocks cut from the head,
// and the widths of compacted blocks.
var blockWidths = []int64{2 * dayMS / 24, 6 * dayMS / 24, 18 * dayMS / 24}

// Blocks writes samples as blocks of Prometheus' TSDB to a folder. A block never crosses a multiple of BlockWidth. Its
// time range extends only from its first to its last sample, so that a Prometheus that loads the block doesn't treat
// samples before or after it as duplicates.
func Blocks(ctx context.Context, s *storage.Store, o Options, folder *Folder) (Stats, error) {
	r := newRun(s, o)
	err := r.blocks(ctx, folder)
	if err == nil {
		_, err = r.result()
	}
	err = folder.finish(err)
	return r.stats, err
}

func (r *run) blocks(ctx context.Context, folder *Folder) error {
	pieces, err := r.pieces(ctx, r.BlockWidth, 0)
	if err != nil {
		return err
	}
	r.total = len(pieces)
	names := ulid.Monotonic(rand.Reader, 0) // monotonic, so that names sort by time
	for _, sp := range pieces {
		r.report(sp, 0)
		list, err := r.series(ctx, sp, "")
		if err != nil {
			return err
		}
		if len(list) > 0 {
			if err := r.block(ctx, folder.partial, names, sp, list); err != nil {
				return wrapped(err)
			}
		}
		r.done++
	}
	return nil
}

// block writes the samples of the series within sp. It writes no block if there are none.
func (r *run) block(ctx context.Context, folder string, names io.Reader, sp query.Span, list []*source) (err error) {
	id, err := ulid.New(uint64(max(0, r.Now().UnixMilli())), names)
	if err != nil {
		return err
	}
	dir := filepath.Join(folder, id.String())
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	b := &block{run: r, meta: tsdb.BlockMeta{ULID: id, MinTime: sp.MaxT, MaxTime: sp.MinT, Version: 1}}
	b.meta.Compaction.Level, b.meta.Compaction.Sources = 1, []ulid.ULID{id}
	b.enc.starts = r.StartTimestamps
	err = b.write(ctx, dir, sp, list)
	if err != nil || b.meta.Stats.NumSamples == 0 {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := b.writeMeta(dir); err != nil {
		return err
	}
	r.stats.Files++
	return filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			r.stats.Bytes += info.Size()
		}
		return err
	})
}

// block is a block that is being written.
type block struct {
	*run
	meta tsdb.BlockMeta
	enc  encoder
	ref  promstorage.SeriesRef
}

func (b *block) write(ctx context.Context, dir string, sp query.Span, list []*source) (err error) {
	chunkw, err := chunks.NewWriter(filepath.Join(dir, "chunks"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chunkw.Close()) }()
	indexw, err := index.NewWriter(ctx, filepath.Join(dir, "index"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, indexw.Close()) }()
	for _, text := range symbols(list) {
		if err := indexw.AddSymbol(text); err != nil {
			return err
		}
	}
	for i, s := range list {
		if i%1000 == 0 {
			b.report(sp, float64(i)/float64(len(list)))
		}
		if err := b.series(s, chunkw, indexw); err != nil {
			return err
		}
	}
	return nil
}

// symbols returns the distinct names and values of labels, sorted.
func symbols(list []*source) []string {
	seen := map[string]struct{}{}
	for _, s := range list {
		s.Labels.Range(func(l labels.Label) { seen[l.Name], seen[l.Value] = struct{}{}, struct{}{} })
	}
	return slices.Sorted(maps.Keys(seen))
}

// series writes the samples of a series within the block, if there are any.
func (b *block) series(s *source, chunkw *chunks.Writer, indexw *index.Writer) error {
	samples, err := b.read(s)
	if err != nil || samples.Len() == 0 {
		return err
	}
	metas, err := b.enc.encode(samples)
	if err != nil {
		return fmt.Errorf("series %s: %w", s.Labels, err)
	}
	if err := chunkw.WriteChunks(metas...); err != nil {
		return err
	}
	b.ref++
	if err := indexw.AddSeries(b.ref, s.Labels, metas...); err != nil {
		return err
	}
	if !b.StartTimestamps {
		b.leaveStarts(samples)
	}
	minT, maxT := bounds(samples)
	b.meta.MinTime, b.meta.MaxTime = min(b.meta.MinTime, minT), max(b.meta.MaxTime, maxT+1)
	st := &b.meta.Stats
	st.NumSeries++
	st.NumChunks += uint64(len(metas))
	st.NumSamples += uint64(samples.Len())
	st.NumFloatSamples += uint64(len(samples.T))
	st.NumHistogramSamples += uint64(len(samples.H))
	b.count(s.Labels, len(samples.T), len(samples.H))
	return nil
}

// writeMeta writes meta.json, which makes the folder a block.
func (b *block) writeMeta(dir string) error {
	text, err := json.MarshalIndent(&b.meta, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "meta.json"))
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if _, err := tombstones.WriteFile(slog.New(slog.DiscardHandler), dir, tombstones.NewMemTombstones()); err != nil {
		return err
	}
	return errors.Join(syncFolder(filepath.Join(dir, "chunks")), syncFolder(dir))
}
