package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/soak"
)

// race is a bucket that multiple processes use concurrently. Before each request a random process is selected to
// continue, and the clock advances; after some requests, the response is lost, or the process is killed.
type race struct {
	*memory
	rand  *rand.Rand
	grace time.Duration
	turn  sync.Mutex
	// late are the backups whose manifests were stored later than Options.Grace allows, as on a machine that was
	// suspended. made are the acknowledged backups.
	late, made map[string]bool
}

// process is a process that makes a backup.
type process struct {
	*race
	name   string    // of its backup
	looked time.Time // when it last read the lists of garbage
	gone   bool
}

var (
	errGone = errors.New("the process was killed")
	errLost = errors.New("the answer was lost")

	errNotWhole = errors.New("a manifest has no file")
)

// step makes a request without interruption. Between requests, other processes make theirs.
func (p *process) step(request func() error) error {
	time.Sleep(time.Duration(p.drawn(50)) * time.Microsecond)
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.gone || p.drawn(300) == 0 {
		p.gone = true
		return errGone
	}
	most := p.grace / 20
	if p.drawn(6) == 0 {
		most = p.grace / 2
	}
	p.mu.Lock()
	p.now = p.now.Add(time.Duration(p.rand.Int64N(int64(most))))
	p.mu.Unlock()
	err := request()
	if p.drawn(300) == 0 {
		return errLost
	}
	return err
}

func (r *race) drawn(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rand.IntN(n)
}

func (r *race) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (p *process) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	return p.step(func() error {
		if strings.HasPrefix(name, "backups/") && p.clock().Sub(p.looked) > p.grace*9/10 {
			if p.drawn(2) == 0 {
				return context.DeadlineExceeded // manifestTimeout has passed.
			}
			p.late[p.name] = true
		}
		return errors.Join(p.memory.Put(ctx, name, from, size), p.checkManifests())
	})
}

func (p *process) Get(ctx context.Context, name string) (r io.ReadCloser, err error) {
	err = p.step(func() error { r, err = p.memory.Get(ctx, name); return err })
	return r, err
}

func (p *process) List(ctx context.Context, prefix string) (out []Object, err error) {
	err = p.step(func() error {
		if strings.HasPrefix(prefix, "garbage/") {
			p.looked = p.clock()
		}
		out, err = p.memory.List(ctx, prefix)
		return err
	})
	return out, err
}

func (p *process) Delete(ctx context.Context, name string) error {
	return p.step(func() error { return p.memory.Delete(ctx, name) })
}

// TestConcurrentBackups makes processes back up one store concurrently. They remove old backups, are killed, and lose
// responses. At any time, every manifest has all of its files, except a manifest that was stored too late and whose
// backup wasn't acknowledged.
func TestConcurrentBackups(t *testing.T) {
	r := &race{
		memory: newMemory(), rand: rand.New(rand.NewPCG(soak.Seed(t), 1)), grace: time.Hour, late: map[string]bool{},
		made: map[string]bool{},
	}
	o := DefaultOptions()
	o.Keep, o.Grace, o.Now, o.Workers = pebble.Keep{Last: 2}, r.grace, r.clock, 1
	removed := 0
	var running sync.WaitGroup
	for worker := range 5 {
		running.Go(func() {
			for i := range soak.Times(t, 25) {
				files := map[string]string{}
				for f := range 4 { // Contents repeat after some backups.
					files[fmt.Sprint(f)] = fmt.Sprint("content ", r.drawn(8))
				}
				p := &process{race: r, name: fmt.Sprintf("%s-%d%d", r.clock().UTC().Format(nameLayout), worker, i)}
				stats, err := Backup(t.Context(), p, checkpoint(t, "s", files), p.name, o)
				r.turn.Lock()
				var retention *pebble.RetentionError
				if err == nil || errors.As(err, &retention) {
					r.made[p.name] = true
				}
				removed += stats.Removed
				r.turn.Unlock()
				r.turn.Lock()
				assert.NoError(t, p.checkManifests())
				r.turn.Unlock()
				assert.NotErrorIs(t, err, errNotWhole)
			}
		})
	}
	running.Wait()
	t.Logf("%d backups were made, %d removed; %d were stored late", len(r.made), removed, len(r.late))
	require.NotEmpty(t, r.made)
	require.NotZero(t, removed)
	require.Less(t, len(r.of("files")), 60, "what isn't used is removed")
}

// checkManifests returns an error unless every manifest has all of its files. It is called while no request is under
// way.
func (r *race) checkManifests() error {
	all, err := listBackups(context.Background(), r.memory, "backups/")
	if err != nil {
		return err
	}
	for _, l := range all {
		m, err := readManifest(context.Background(), r.memory, l, nil)
		if err != nil {
			return err
		}
		for _, f := range m.Files {
			if r.late[l.Name] && !r.made[l.Name] {
				break
			}
			content, ok := r.objects[l.folder("files")+f.Object]
			sum := sha256.Sum256(content)
			if !ok || hex.EncodeToString(sum[:]) != f.SHA256 {
				return fmt.Errorf("%w: %s, %s", errNotWhole, l.Name, f.Object)
			}
		}
	}
	return nil
}
