package query

import (
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// GroupSeries is the minimum number of neighboring series of a result that are read together.
	GroupSeries = 256
	// maxGroupSeries is the maximum number of series that are read together from a remote engine, if they have few
	// chunks.
	maxGroupSeries = 4096
	// sortedGroups is the number of groups of a large sorted result. Pages are ordered by id, so each group reads
	// nearly all pages. Each page is therefore read sortedGroups times, and two or three groups are in memory at a
	// time. A group has at most sortedRows chunks. All groups except the first have as many series as fit in the bytes
	// that sortedBytes returns, estimated from the size of the chunks of the first group, because chunks of short-lived
	// series are small.
	sortedGroups, sortedRows = 16, 16384
	// minSortedBytes and maxSortedBytes bound the size of a group of a large sorted result. Between them, a group has
	// sortedSeriesBytes per series of the result, a quarter of the memory that the list of series takes. So the groups
	// in memory never take more than the list, and a result of many short series is read in a few groups.
	minSortedBytes, maxSortedBytes, sortedSeriesBytes = 4 << 20, 16 << 20, 32
	// sealedChunkBytes is the size of a sealedChunk without its data.
	sealedChunkBytes = 40
	// groupsAhead is the number of groups that are read ahead. widenedAhead is the number of resized groups that are
	// read ahead.
	groupsAhead, widenedAhead = 2, 1
	// maxHeldGroups is the maximum number of groups whose chunks are in memory. Multiple readers may iterate over a
	// result concurrently, each at its own position. With too many readers, some groups are read more than once.
	maxHeldGroups = 16
)

// groups reads the sealed chunks of a selection, one group of series at a time.
type groups struct {
	sel *selection
	// first is the number of series in the first group. series is the number of series in each other group, except the
	// last. Both are multiples of 64.
	series, first int
	// ahead is the number of following groups that are also loaded when a group is first read.
	ahead    int
	widening sync.Once
	mu       sync.Mutex
	all      []group
	// read has a bit for each series of the result. The bit is set once the series has been read since its group was
	// loaded.
	read []uint64
	// held are the groups whose chunks are in memory, in the order in which their loads started.
	held []int
}

type group struct {
	load *groupLoad // nil if not loaded, or released
	left int        // number of series that weren't read yet
}

// groupLoad is a load of a group's chunks, which is running or finished.
type groupLoad struct {
	done   chan struct{}
	err    error
	chunks []sealedChunk // by series
	ends   []uint32      // the end of each series' chunks
}

// sealedChunk is an encoded chunk.
type sealedChunk struct {
	data   []byte
	start  int64
	source uint32
	series uint32 // index in the group
}

func (g *groups) init(sel *selection, sorted bool) {
	g.sel = sel
	if len(sel.sources) == 0 {
		return
	}
	g.series = GroupSeries
	if rows := sel.r.env.GroupRows; rows > 0 {
		g.series = max(GroupSeries, min(rows/sel.maxChunksPerSeries(), maxGroupSeries)&^63)
	}
	if sorted {
		g.series = max(g.series, min(len(sel.series)/sortedGroups, sortedRows/sel.maxChunksPerSeries())&^63)
	}
	g.first, g.ahead = g.series, groupsAhead
	g.read = make([]uint64, (len(sel.series)+63)/64)
	g.createGroups()
	if !sorted || g.series == GroupSeries {
		g.widening.Do(func() {})
	}
}

// createGroups divides the series into groups. Only the first group may have been loaded before.
func (g *groups) createGroups() {
	n := 1 + g.groupOf(len(g.sel.series)-1)
	g.all = append(g.all[:min(1, len(g.all))], make([]group, n-min(1, len(g.all)))...)
	for i := range g.all {
		g.all[i].left = g.size(i)
	}
}

// resizeGroups reads the first group of a large sorted result, and determines the size of the other groups from the
// size of its chunks.
func (g *groups) resizeGroups() {
	g.mu.Lock()
	load, _ := g.startLoad(0)
	g.mu.Unlock()
	g.runLoad(load, 0)
	bytes := 0
	for _, c := range load.chunks {
		bytes += sealedChunkBytes + len(c.data)
	}
	if load.err != nil || bytes == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.sel.series)
	g.series = max(g.series, min(n, sortedBytes(n)*g.size(0)/bytes)&^63)
	g.ahead = widenedAhead
	g.createGroups()
}

// sortedBytes returns the size of a group of a sorted result of n series, in bytes.
func sortedBytes(n int) int { return min(max(minSortedBytes, n*sortedSeriesBytes), maxSortedBytes) }

// maxChunksPerSeries returns the approximate number of sealed chunks of a series that always has samples, and at least
// 1.
func (sel *selection) maxChunksPerSeries() int {
	n, counted := 0, map[*sealedWindow]bool{}
	for i := range sel.sources {
		if w := sel.sources[i].window; !counted[w] {
			counted[w] = true
			n += sel.chunksOf(w)
		}
	}
	return max(1, n)
}

// groupOf returns the group of the series at an index.
func (g *groups) groupOf(at int) int {
	if at < g.first {
		return 0
	}
	return 1 + (at-g.first)/g.series
}

// firstIndex returns the index of the first series of a group. size returns the number of its series.
func (g *groups) firstIndex(i int) int {
	if i == 0 {
		return 0
	}
	return g.first + (i-1)*g.series
}

func (g *groups) size(i int) int { return min(g.firstIndex(i+1), len(g.sel.series)) - g.firstIndex(i) }

// chunks returns the sealed chunks of a series. Within a shard they are ordered by time.
func (g *groups) chunks(s *SelectedSeries) ([]sealedChunk, error) {
	if len(g.all) == 0 {
		return nil, nil
	}
	g.widening.Do(g.resizeGroups)
	load, i, mine := g.loadFor(int(s.at))
	if mine {
		g.runLoad(load, i)
	}
	select {
	case <-load.done: // This is the usual case, and costs less than waiting for both channels.
	default:
		select {
		case <-load.done:
		case <-g.sel.ctx.Done():
			return nil, g.sel.ctx.Err()
		}
	}
	if load.err != nil {
		return nil, load.err
	}
	local := int(s.at) - g.firstIndex(i)
	from := uint32(0)
	if local > 0 {
		from = load.ends[local-1]
	}
	return load.chunks[from:load.ends[local]], nil
}

// loadFor returns the group of the series at an index, and its load. If mine is true, the caller must run the load. The
// first read of a group also starts the loads of the next groups. A group is released once all its series have been
// read.
func (g *groups) loadFor(at int) (load *groupLoad, i int, mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i = g.groupOf(at)
	gr := &g.all[i]
	first := gr.left == g.size(i)
	load, mine = g.startLoad(i)
	if bit := uint64(1) << (at % 64); g.read[at/64]&bit == 0 {
		g.read[at/64] |= bit
		gr.left--
	}
	if gr.left == 0 {
		g.releaseGroup(i)
	}
	if first {
		for ahead := i + 1; ahead <= i+g.ahead && ahead < len(g.all); ahead++ {
			if g.all[ahead].left != g.size(ahead) {
				continue
			}
			if next, isNew := g.startLoad(ahead); isNew {
				go panics.WrapContained("reading", func() { g.runLoad(next, ahead) })()
			}
		}
	}
	return load, i, mine
}

// startLoad returns the load of a group. If isNew is true, the caller must run the load. The caller must hold the lock.
func (g *groups) startLoad(i int) (load *groupLoad, isNew bool) {
	if load := g.all[i].load; load != nil {
		return load, false
	}
	if len(g.held) >= maxHeldGroups {
		g.releaseGroup(g.held[0])
	}
	load = &groupLoad{done: make(chan struct{})}
	g.all[i].load = load
	g.held = append(g.held, i)
	return load, true
}

// runLoad runs the load of a group.
func (g *groups) runLoad(load *groupLoad, i int) {
	defer close(load.done)
	load.err = cache.ErrLoadPanicked
	from := g.firstIndex(i)
	load.readChunks(g.sel, g.sel.series[from:from+g.size(i)])
}

func (g *groups) releaseGroup(i int) {
	g.all[i] = group{left: g.size(i)}
	clear(g.read[g.firstIndex(i)/64 : (g.firstIndex(i)+g.size(i)+63)/64])
	if at := slices.Index(g.held, i); at >= 0 {
		g.held = slices.Delete(g.held, at, at+1)
	}
}

// readChunks reads the chunks of the series.
func (l *groupLoad) readChunks(sel *selection, series []*SelectedSeries) {
	n := 0
	for _, s := range series {
		n += int(s.to - s.from)
	}
	memory := wantMemory.Get().(*[]wantedSeries)
	wants := slices.Grow((*memory)[:0], n)
	defer func() {
		if clear(wants); cap(wants) <= maxReusedWants {
			*memory = wants
			wantMemory.Put(memory)
		}
	}()
	for i, s := range series {
		var deletes format.Tombstones
		if len(sel.uncleaned) > 0 {
			deletes = sel.r.deletes.OfSeries(s.Labels)
		}
		parts := sel.parts[s.from:s.to]
		for _, p := range parts {
			if p.source != inHead {
				wants = append(wants, wantedSeries{
					source: p.source, at: p.at, series: uint32(i), alone: sel.isAlone(parts, p.source), of: s,
					deletes: deletes,
				})
			}
		}
	}
	sortWants(wants)
	tasks := sel.tasks(wants, len(series) > GroupSeries)
	got := make([][]sealedChunk, len(tasks))
	var err error
	if rest := sel.readCachedTasks(tasks, len(wants), got); len(rest) == 1 {
		got[rest[0]], err = sel.fetch(sel.ctx, &tasks[rest[0]])
	} else if len(rest) > 1 {
		err = sel.fetchTasks(tasks, rest, got)
	}
	if l.err = err; err == nil {
		l.sortChunks(len(series), got)
	}
}

// fetchTasks reads the chunks of some tasks. places contains the indexes of these tasks in tasks, and the indexes of
// the results in got.
func (sel *selection) fetchTasks(tasks []task, places []int, got [][]sealedChunk) error {
	g, ctx := errgroup.WithContext(sel.ctx)
	var next atomic.Int64
	for range min(ReadWorkers, len(places)) { // One goroutine per task is slower, because stacks have to grow.
		g.Go(panics.WrapError("reading", func() (err error) {
			for i := next.Add(1) - 1; i < int64(len(places)) && err == nil; i = next.Add(1) - 1 {
				got[places[i]], err = sel.fetch(ctx, &tasks[places[i]])
			}
			return err
		}))
	}
	return g.Wait()
}

// isAlone reports whether source is in a rollup window and a series has only one part in this window. If it has
// multiple parts, their chunks must be compared.
func (sel *selection) isAlone(parts []part, source uint32) bool {
	window, n := sel.sources[source].window.window, 0
	if format.ResolutionOf(window) == rollup.Raw {
		return false
	}
	for _, p := range parts {
		if p.source != inHead && sel.sources[p.source].window.window == window {
			n++
		}
	}
	return n == 1
}

// sortChunks sorts the chunks by series.
func (l *groupLoad) sortChunks(series int, got [][]sealedChunk) {
	next := make([]uint32, series+1)
	total := 0
	for _, chunks := range got {
		total += len(chunks)
		for _, c := range chunks {
			next[c.series+1]++
		}
	}
	for i := range series {
		next[i+1] += next[i]
	}
	l.ends = slices.Clone(next[1:])
	l.chunks = make([]sealedChunk, total)
	for _, chunks := range got {
		for _, c := range chunks {
			l.chunks[next[c.series]] = c
			next[c.series]++
		}
	}
}
