package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/retention"
)

const (
	// maxMetadataText bounds the size of a unit and of a help text, in bytes. Longer strings are truncated.
	maxMetadataText = 4 << 10
	// maxMetadataSeen bounds the number of written entries that the keeper caches. When the cache is full, it is
	// cleared.
	maxMetadataSeen = 1 << 18
	// maxMetadataQueue bounds the number of entries that wait to be written. Further entries are dropped, because
	// senders repeat metadata.
	maxMetadataQueue = 1 << 14
	// metadataDelay is the time for which the keeper collects entries before it writes them.
	metadataDelay = time.Second
)

// metadataKeeper writes the metadata of metrics, as sent by clients, once per window.
type metadataKeeper struct {
	s    *Store
	seed maphash.Seed

	mu    sync.Mutex
	seen  map[uint64]struct{}
	queue []queuedMetadata
	wake  chan struct{}
	done  chan struct{}
}

type queuedMetadata struct {
	hash           uint64
	window         int64
	tenant, metric string
	format.Metadata
}

func newMetadataKeeper(s *Store) *metadataKeeper {
	return &metadataKeeper{
		s: s, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
}

// QueueMetadata queues the metadata of a metric and returns immediately. The row is written later, unless this process
// has already written it in this window, or the queue is full. The caller keeps ownership of the bytes. Names from OTLP
// haven't been checked yet, so metadata with an invalid metric name is ignored.
func (s *Store) QueueMetadata(tenant string, metric []byte, typ string, unit, help []byte) {
	if len(metric) == 0 || len(metric) > s.opts.MaxLabelValue || !utf8.Valid(metric) {
		return
	}
	unit, help = unit[:min(len(unit), maxMetadataText)], help[:min(len(help), maxMetadataText)]
	k := s.metadata
	window := s.period.RawWindowAt(s.opts.Now().UnixMilli())
	var h maphash.Hash
	h.SetSeed(k.seed)
	for _, part := range []string{tenant, typ} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	for _, part := range [][]byte{metric, unit, help} {
		_, _ = h.Write(part)
		_ = h.WriteByte(0)
	}
	hash := h.Sum64() + uint64(window)*0x9e3779b97f4a7c15
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.seen[hash]; ok || len(k.queue) >= maxMetadataQueue {
		return
	}
	if len(k.seen) >= maxMetadataSeen {
		clear(k.seen)
	}
	k.seen[hash] = struct{}{}
	k.queue = append(k.queue, queuedMetadata{
		hash: hash, window: window, tenant: tenant, metric: string(metric),
		Metadata: format.Metadata{
			Type: typ, Unit: strings.ToValidUTF8(string(unit), "\uFFFD"),
			Help: strings.ToValidUTF8(string(help), "\uFFFD"),
		},
	})
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run writes queued metadata until ctx is done. It then writes the remaining entries and returns.
func (k *metadataKeeper) run(ctx context.Context) {
	defer close(k.done)
	for {
		select {
		case <-ctx.Done():
			k.write()
			return
		case <-k.wake:
		}
		select {
		case <-ctx.Done():
		case <-time.After(metadataDelay):
		}
		k.write()
	}
}

func (k *metadataKeeper) write() {
	k.mu.Lock()
	queue := k.queue
	k.queue = nil
	k.mu.Unlock()
	const group = 1000
	for batch := range slices.Chunk(queue, group) {
		err := panics.Call("writing metadata", func() error { return k.writeGroup(batch) })
		if err == nil {
			continue
		}
		k.s.opts.Logger.Warn("can't store metric metadata; it is stored when a sender sends it again", "err", err)
		k.mu.Lock()
		for _, n := range batch {
			delete(k.seen, n.hash)
		}
		k.mu.Unlock()
	}
}

func (k *metadataKeeper) writeGroup(batch []queuedMetadata) error {
	ctx, cancel := context.WithTimeout(context.Background(), membership.CommitTimeout)
	defer cancel()
	rows := make([]engine.Batch, 0, len(batch))
	for _, n := range batch {
		if err := k.s.listWindow(ctx, n.tenant, n.window); err != nil {
			return err
		}
		row := metadataRow(k.s.period, n)
		err := k.s.retention.SetExpiry(ctx, &row, n.tenant, retention.Shared, n.window)
		if errors.Is(err, retention.ErrWindowOver) {
			continue
		}
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return k.s.eng.Write(ctx, rows)
}

// metadataRow returns the row of queued metadata.
func metadataRow(p *format.Periods, n queuedMetadata) engine.Batch {
	value := format.AppendMetadata(nil, n.Metadata)
	sum := sha256.Sum256(value)
	return engine.Batch{
		Table: engine.Metadata, Partition: engine.Key{engine.Int(n.window), engine.Text(n.tenant)},
		Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Text(n.metric), engine.Text(string(sum[:engine.IDLen]))},
			Timestamp:  p.WindowEnd(n.window)*1000 - 1, Value: value,
		}},
	}
}
