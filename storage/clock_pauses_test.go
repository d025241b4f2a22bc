package storage

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/query"
)

// TestStagedUnderTwoPauses writes samples before and after a pause of six days, and kills the process within a minute
// each time. After pauses of 4 and 20 days it opens a copy of the store. Queries must return all acknowledged samples,
// before and after they are sealed.
func TestStagedUnderTwoPauses(t *testing.T) {
	mem := memory.New()
	r := &clockRig{t: t, eng: mem}
	m := r.start(0)
	for i := range 100 {
		require.NoError(t, m.write(r.now().Add(time.Duration(i-100)*time.Second), 1))
	}
	m.stop()
	r.pass(6 * day)
	m = r.start(0)
	m.refuses()
	for i := range 100 {
		require.NoError(t, m.write(r.now().Add(time.Duration(i-100)*time.Second), 2))
	}
	r.eng = mem.Copy() // The copy has no later writes, as after a kill or in a backup.
	m.stop()
	for _, later := range []time.Duration{4 * day, 20 * day} {
		r.pass(later)
		m = r.start(0, func(o *Options) { o.ReadOnly = true })
		require.Equal(t, 200, m.visible())
		require.Empty(t, m.problems())
		m.stop()
		m = r.start(0)
		require.Equal(t, 200, m.visible())
		m.stop()
	}
	m = r.start(0)
	require.NoError(t, m.SealAll(t.Context()))
	require.Equal(t, 200, m.visible())
}

// problems returns the problems that Check reports.
func (m *clockMachine) problems() (problems []string) {
	_, err := m.Check(m.r.t.Context(), func(p string) { problems = append(problems, p) })
	require.NoError(m.r.t, err)
	return problems
}

// TestStagedSamplesOfAFastClusterAreRead writes a sample while all clocks of a cluster are months fast, and then
// corrects the clocks. The sample must still be waiting to be sealed.
func TestStagedSamplesOfAFastClusterAreRead(t *testing.T) {
	ahead := 100 * day
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{memory.New(), func() time.Time { return r.now().Add(ahead) }}
	m := r.start(ahead)
	require.NoError(t, m.write(m.opts.Now(), 1))
	require.Empty(t, m.problems())
	m.stop()
	ahead = 0
	// The memory engine doesn't expire rows, so the stream positions of the first process still exist.
	m = r.start(0, func(o *Options) { o.Follow = false })
	require.Empty(t, m.problems())
	require.NotEmpty(t, m.waiting())
}

// shown returns the samples of the only series that a query returns.
func (m *clockMachine) shown() (map[int64]float64, error) {
	list, err := m.Select(
		m.r.t.Context(), query.Query{Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: ofMetric()},
	)
	if err != nil {
		return nil, err
	}
	found := map[int64]float64{}
	for i := range list {
		var samples chunk.Samples
		if err := list[i].Samples(&samples); err != nil {
			return nil, err
		}
		for j, at := range samples.T {
			found[at] = samples.V[j]
		}
	}
	return found, nil
}

// TestPauses runs seeded histories of one process. Its machine is repeatedly off for days, or its clock leaps. The
// process is killed, and backups are made and restored. At every start, before and after sealing, answers must contain
// exactly the samples that were acknowledged and not deleted, even if the store is opened ReadOnly. Every other history
// has a retention and a right clock.
func TestPauses(t *testing.T) {
	t.Parallel()
	for seed := range protocolSeeds(t, 150) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { // A subtest releases its stores when it ends.
			p := &pausesRun{rng: rand.New(rand.NewPCG(seed, 39)), right: seed%2 == 1}
			p.run(t)
			if p.problem != "" {
				t.Fatalf("%s\n%s", p.problem, strings.Join(p.log, "\n"))
			}
		})
	}
}

// pausesRun is the state of a history.
type pausesRun struct {
	rng *rand.Rand
	// right is true if the clock is always right. In such a history only the observed uptime differs from the true
	// time, and samples have a retention.
	right   bool
	r       *clockRig
	m       *clockMachine
	eng     *memory.Engine
	acked   map[int64]float64
	written int
	backups []pausesBackup
	off     time.Duration
	log     []string
	problem string
}

// pausesBackup is a copy of the rows, and of the samples that were acknowledged before it was made.
type pausesBackup struct {
	eng   *memory.Engine
	acked map[int64]float64
}

const pausesRetention = 40 * day

func (p *pausesRun) note(format string, args ...any) {
	p.log = append(p.log, p.r.now().Format("01-02T15:04 ")+fmt.Sprintf(format, args...))
}

func (p *pausesRun) fail(format string, args ...any) {
	if p.problem == "" {
		p.problem = fmt.Sprintf(format, args...)
	}
}

func (p *pausesRun) run(t *testing.T) {
	p.eng, p.acked = memory.New(), map[int64]float64{}
	p.r = &clockRig{t: t}
	p.start()
	for range 40 + p.rng.IntN(40) {
		if p.step(); p.problem != "" {
			break
		}
	}
	p.kill()
	p.pause()
	p.start()
	p.seal()
	p.m.stop()
}

func (p *pausesRun) step() {
	switch p.rng.IntN(16) {
	case 0, 1, 2, 3, 4:
		p.write()
	case 5, 6, 7:
		p.kill()
		p.pause()
		p.start()
	case 8:
		p.note("backup %d", len(p.backups))
		p.backups = append(p.backups, pausesBackup{p.eng.Copy(), maps.Clone(p.acked)})
	case 9:
		p.restore()
	case 10:
		p.seal()
	case 11, 12:
		p.round()
	case 13:
		d := []time.Duration{time.Minute, 3 * time.Hour, 2 * day}[p.rng.IntN(3)]
		p.note("run for %v", d)
		for ; d > 0; d -= 12 * time.Hour { // A clock is untrusted until it has run evenly.
			p.r.pass(min(d, 12*time.Hour))
			p.m.clock.ObservedUptimeMS()
		}
	case 14:
		p.delete()
	default:
		if !p.right {
			p.leap()
			p.m.set(p.off)
			p.note("set the clock %v off", p.off)
		}
	}
	p.compare("after that")
}

func (p *pausesRun) leap() {
	p.off = []time.Duration{
		0, 0, 6 * day, -6 * day, 100 * day, -228 * day, 73 * 365 * day, time.Unix(0, 0).Sub(p.r.now()), 2 * time.Hour,
		-time.Hour,
	}[p.rng.IntN(10)]
}

// kill ends the process without any further write.
func (p *pausesRun) kill() {
	p.note("kill")
	eng := p.eng.Copy()
	p.m.stop()
	p.eng = eng
}

// pause turns the machine off for some days.
func (p *pausesRun) pause() {
	d := time.Duration(p.rng.IntN(240)) * time.Hour
	p.note("off for %v", d)
	p.r.pass(d)
	if !p.right && p.rng.IntN(3) == 0 {
		p.leap()
	}
}

func (p *pausesRun) restore() {
	if len(p.backups) == 0 {
		return
	}
	n := p.rng.IntN(len(p.backups))
	p.kill()
	p.pause()
	p.note("restore backup %d", n)
	p.eng, p.acked = p.backups[n].eng.Copy(), maps.Clone(p.backups[n].acked)
	p.start()
}

func (p *pausesRun) start() {
	p.r.eng = p.eng
	keep := func(o *Options) {
		o.AheadPatience = 0 // Samples of a clock that is set back later are rejected at once.
		o.Retention = 0
		if p.right {
			o.Retention = pausesRetention
		}
	}
	today := func(*Options) {}
	if p.rng.IntN(8) == 0 {
		today = func(o *Options) { o.Today = o.Now().UTC().Truncate(day) }
	}
	p.note("start with the clock %v off", p.off)
	if p.rng.IntN(3) == 0 && len(p.acked) > 0 { // Opened ReadOnly.
		p.m = p.r.start(p.off, keep, func(o *Options) { o.ReadOnly = true })
		p.compare("opened to look at it")
		for _, problem := range p.m.problems() {
			p.fail("check: %s", problem)
		}
		p.m.stop()
	}
	p.m = p.r.start(p.off, keep, today)
	p.compare("started")
}

func (p *pausesRun) seal() {
	p.note("seal")
	if err := p.m.SealAll(p.r.t.Context()); err != nil {
		p.fail("sealing: %v", err)
	}
	p.compare("sealed")
	for _, table := range []*engine.Table{engine.Stage, engine.Staged} { // A single process lists no slots.
		for key, err := range p.eng.Partitions(p.r.t.Context(), table, nil, nil) {
			p.fail("%v of %s is left after all was sealed: %v", key, table, err)
		}
	}
}

// round does the work of a server for one minute.
func (p *pausesRun) round() {
	ctx := p.r.t.Context()
	p.note("round")
	for partition := range p.m.Partitions() {
		staged, err := p.m.Staged(ctx, partition, time.Hour.Milliseconds())
		if err != nil {
			p.fail("listing: %v", err)
		}
		for _, w := range staged {
			if _, err := p.m.Seal(ctx, w.Work); err != nil {
				p.fail("sealing: %v", err)
			}
		}
		_, swept := p.m.SealUnlisted(ctx, partition)
		for _, err := range []error{p.m.UnlistSlots(ctx, partition), swept} {
			if err != nil && !errors.Is(err, membership.ErrClock) {
				p.fail("round: %v", err)
			}
		}
	}
	if _, err := p.m.Expire(ctx); err != nil && !errors.Is(err, membership.ErrClock) {
		p.fail("expiring: %v", err)
	}
}

// write sends samples at the clock's time and at the right time, and late samples.
func (p *pausesRun) write() {
	from := p.r.now()
	if p.rng.IntN(2) == 0 {
		from = p.m.opts.Now()
	}
	switch p.rng.IntN(4) {
	case 0:
		from = from.Add(-time.Duration(p.rng.IntN(40*24)) * time.Hour)
	case 1:
		from = from.Add(-time.Duration(p.rng.IntN(72)) * time.Hour)
	}
	n := 0
	for range 1 + p.rng.IntN(5) {
		p.written++
		at := from.Add(
			-time.Duration(p.rng.IntN(120*60)) * time.Second,
		).Truncate(time.Second).Add(time.Duration(p.written%1000) * time.Millisecond)
		switch err := p.m.write(at, float64(p.written)); {
		case err == nil:
			p.acked[at.UnixMilli()] = float64(p.written)
			n++
		case !errors.Is(err, ErrTooOld) && !errors.Is(err, ErrTooFarAhead) && !errors.Is(err, ErrMaybeAhead) &&
			!errors.Is(err, ErrDroppedAhead):
			p.fail("writing: %v", err)
		}
	}
	p.note("write %d samples before %s", n, from.UTC().Format(time.RFC3339))
}

func (p *pausesRun) delete() {
	end := p.r.now()
	if p.rng.IntN(3) == 0 {
		end = end.Add(-time.Duration(p.rng.IntN(20*24)) * time.Hour)
	}
	start := end.Add(-time.Duration(1+p.rng.IntN(100)) * time.Hour)
	err := p.m.Delete(p.r.t.Context(), "t", start.UnixMilli(), end.UnixMilli(), ofMetric()...)
	p.note("delete from %s to %s: %v", start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339), err)
	switch {
	case err == nil:
		maps.DeleteFunc(
			p.acked, func(at int64, _ float64) bool { return at >= start.UnixMilli() && at <= end.UnixMilli() },
		)
	case !errors.Is(err, membership.ErrClock):
		p.fail("deleting: %v", err)
	}
	if err := p.m.CleanTombstones(p.r.t.Context(), "t"); err != nil && !errors.Is(err, membership.ErrClock) {
		p.fail("cleaning: %v", err)
	}
}

// compare compares the answers with the acknowledged samples.
func (p *pausesRun) compare(when string) {
	shown, err := p.m.shown()
	if err != nil {
		p.fail("%s: %v", when, err)
		return
	}
	kept := int64(-format.MaxTime)
	if p.right {
		kept = p.r.now().Add(-pausesRetention).UnixMilli()
	}
	missing, wrong := 0, 0
	for at, v := range p.acked {
		if found, ok := shown[at]; ok && found != v {
			wrong++
		} else if !ok && at > kept {
			missing++
		}
	}
	for at := range shown {
		if _, ok := p.acked[at]; !ok {
			wrong++
		}
	}
	if missing+wrong > 0 {
		p.fail(
			"%s: of %d acknowledged samples %d are missing, and %d are wrong or were deleted", when, len(p.acked),
			missing, wrong,
		)
	}
}
