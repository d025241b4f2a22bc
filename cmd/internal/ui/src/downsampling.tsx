// Downsampling: which slots wait to be sealed, the lag of sealing, what is sealed at which resolution, and late
// samples.
import { useState } from 'preact/hooks';
import { call } from './api';
import type { ViewProps } from './app';
import { count, plural } from './format';
import { Empty, Failures, missing, Notice, Panel, Scroll, Stat, Tabs, useLoad } from './parts';
import { day, duration, since, utc } from './time';
import { resolutions, useWindows, widths, type Window } from './windows';

interface Slot {
  start: string;
  end: string;
  at: string;
}

interface Partition {
  partition: number;
  mine: boolean;
  owner?: string;
  waiting_slots: number;
  oldest?: Slot | null;
  last_sealed?: Slot | null;
  damaged_slots?: number;
  failed_rounds: number;
  last_error?: string;
  do?: string;
}

/** Resting describes ended windows that wait for maintenance. */
interface Resting {
  listed?: string;
  windows: number;
  done: number;
  first: { tenant: string; resolution: string; start: string; end: string; last_error?: string }[];
}

interface Work {
  halted?: string;
  alarm: boolean;
  lag_seconds: number;
  lag_limit_seconds: number;
  waiting_slots: number;
  stuck_partitions: number[];
  last_round?: string;
  sealed_slots: number;
  repaired_slots: number;
  doing?: string;
  worked_seconds: number;
  rested_seconds: number;
  compaction: Resting;
  counting: Resting;
  rollups: { windows: number; first: { tenant: string; start: string; end: string; seals: number; last_error?: string }[] };
  failing_chores: { chore: string; failures: number; last_error: string }[];
  partitions: Partition[] | null;
  whole: boolean;
}

export function Downsampling({ tenant }: ViewProps) {
  const work = useLoad((signal) => call<Work>('cassia/work', {}, { tenant, signal }).then((a) => a.data), [tenant], 10_000);
  const windows = useWindows(tenant);
  const w = work.data;
  const late = (windows.data?.windows ?? []).filter((x) => x.resolution === 'raw' && x.again > 0).reverse();
  const busy = w ? w.worked_seconds / Math.max(1, w.worked_seconds + w.rested_seconds) : 0;
  return (
    <>
      <div class="head-line">
        <h1>Downsampling</h1>
        <p>When a slot (2 hours of samples by default) has ended, it is sealed: its samples are compressed and rolled up into 5-minute and 1-hour buckets.</p>
      </div>
      <Failures of={[work, windows]} />
      <div class="stats">
        <Stat name="Waiting slots" value={w ? count(w.waiting_slots) : missing(work)} note="due, not sealed yet" bad={w?.alarm} />
        <Stat name="Lag" value={w ? duration(w.lag_seconds) : missing(work)} note={w ? `alarm above ${duration(w.lag_limit_seconds)}` : undefined} bad={w?.alarm} />
        <Stat name="Sealed slots" value={w ? count(w.sealed_slots) : missing(work)} note="since process start" />
        <Stat name="Resealed slots" value={w ? count(w.repaired_slots) : missing(work)} note="because of late samples" />
        <Stat name="Missing rollups" value={w ? count(w.rollups.windows) : missing(work)} note={w?.rollups.windows === 1 ? 'window not rolled up yet' : 'windows not rolled up yet'} />
        <Stat name="Compaction queue" value={w ? waiting(w.compaction) : missing(work)} note={progress(w?.compaction, w?.compaction.windows === 1 ? 'rollup window' : 'rollup windows')} />
        <Stat name="Series count queue" value={w ? waiting(w.counting) : missing(work)} note={progress(w?.counting, `${w?.counting.windows === 1 ? 'day' : 'days'} to count, for Cardinality`)} />
        <Stat name="Busy" value={w ? `${(busy * 100).toFixed(busy < 0.1 ? 1 : 0)}%` : missing(work)} note={w?.doing || (w?.last_round ? `last run ${since(w.last_round)}` : 'share of time')} />
      </div>
      {w && <Troubles work={w} />}
      {(windows.data || !windows.error) && <Timeline windows={windows.data?.windows} cut={windows.data?.cut ?? false} />}
      {(windows.data || !windows.error) && <Panel title="Late samples" aside="Slots that were sealed again, by window">
        {late.length ? (
          <Scroll label="Resealed slots">
            <table>
              <thead><tr><th>Window</th><th class="num">Resealed</th><th class="num">Missing rollups</th></tr></thead>
              <tbody>{late.slice(0, 30).map((x) => <tr key={x.start}><td>{day(x.start)}</td><td class="num">{plural(x.again, 'time')}</td><td class="num">{x.unrolled ? count(x.unrolled) : 'none'}</td></tr>)}</tbody>
            </table>
          </Scroll>
        ) : (
          <p class={`small ${windows.data ? '' : 'reserve-some'}`}>{windows.data ? 'No samples arrived after their slot was sealed. If late samples arrive, their slot is sealed again and the affected rollup buckets are recomputed.' : '\u00a0'}</p>
        )}
      </Panel>}
      {(w || !work.error) && <Partitions list={w?.partitions ?? []} />}
    </>
  );
}

/**
 * waiting returns the number of waiting windows. It is a dash if they aren't listed yet or another process maintains
 * them.
 */
function waiting(r: Resting): string {
  return r.listed ? count(r.windows) : '–';
}

/** progress returns a note about waiting windows, with the number of processed windows if there are any. */
function progress(r: Resting | undefined, words: string): string {
  return r?.done ? `${words}; ${count(r.done)} done since process start` : words;
}

function Troubles({ work: w }: { work: Work }) {
  const none = !w.halted && !w.alarm && !w.stuck_partitions.length && !w.failing_chores.length && !w.rollups.first.some((f) => f.last_error) && !w.compaction.first.some((f) => f.last_error) && !w.counting.first.some((f) => f.last_error);
  if (none) return null;
  return (
    <div>
      {w.halted && <Notice tone="error" title="Sealing has stopped.">{w.halted}</Notice>}
      {w.alarm && <Notice tone="error" title={`Sealing lags by ${duration(w.lag_seconds)}.`}>See the partition errors below, and search the log for “sealing failed”. With Cassandra, more processes with --target=downsample can share the work.</Notice>}
      {w.stuck_partitions.length > 0 && <Notice tone="warning" title={`Sealing repeatedly fails for ${plural(w.stuck_partitions.length, 'partition')}: ${w.stuck_partitions.join(', ')}.`} />}
      {w.failing_chores.map((c) => <Notice key={c.chore} tone="warning" title={`${c.chore} has failed ${plural(c.failures, 'time')}.`}>{c.last_error}</Notice>)}
      {w.compaction.first.filter((f) => f.last_error).map((f) => <Notice key={f.tenant + f.resolution + f.start} tone="warning" title={`Compaction fails for the ${f.resolution} rollups of tenant ${f.tenant}, window ${day(f.start)}.`}>{f.last_error}</Notice>)}
      {w.counting.first.filter((f) => f.last_error).map((f) => <Notice key={f.tenant + f.start} tone="warning" title={`Counting the series of tenant ${f.tenant} fails for ${day(f.start)}.`}>{f.last_error}</Notice>)}
      {w.rollups.first.filter((f) => f.last_error).map((f) => <Notice key={f.tenant + f.start} tone="warning" title={`Rolling up samples of tenant ${f.tenant} fails for ${day(f.start)}.`}>{f.last_error}</Notice>)}
    </div>
  );
}

const spans: [string, string, number][] = [['7d', '7 days', 7], ['30d', '30 days', 30], ['1y', '1 year', 365], ['all', 'all', Infinity]];

/** Timeline shows the sealed windows, with a lane per resolution. */
function Timeline({ windows, cut }: { windows: Window[] | undefined; cut: boolean }) {
  const [span, setSpan] = useState('');
  if (windows && !windows.length) {
    return <Panel title="Sealed data"><Empty title="No sealed data yet">By default, a slot is 2 hours long and is sealed 15 minutes after its end, so that late samples are included.</Empty></Panel>;
  }
  const now = Date.now();
  const list = windows ?? [];
  const oldest = Math.min(now - 86400_000, ...list.filter((w) => w.resolution === 'raw').map((w) => Date.parse(w.start)), ...list.map((w) => Date.parse(w.start)).filter((t) => !list.some((w) => w.resolution === 'raw') && t > 0));
  const usual = spans.find(([, , days]) => now - days * 86400_000 <= oldest)![0];
  const days = spans.find(([name]) => name === (span || usual))![2];
  const begin = days === Infinity ? Math.min(oldest, ...list.map((w) => Date.parse(w.start))) : now - days * 86400_000;
  const at = (t: number) => ((Math.min(now, Math.max(begin, t)) - begin) / (now - begin)) * 100;
  const newest = Math.max(begin, ...list.filter((w) => w.resolution === 'raw').map((w) => Math.min(now, sealedUntil(w))));
  return (
    <Panel title="Sealed data" aside={<Tabs label="Time range" tabs={spans.map(([name, words]) => [name, words])} at={span || usual} onChange={setSpan} />}>
      {cut && <p class="small">Only the latest 800 windows of each resolution are shown.</p>}
      <div class="timeline">
        {resolutions.map((res) => {
          const own = list.filter((w) => w.resolution === res && Date.parse(w.end) > begin);
          return (
            <div class="lane" key={res}>
              <div class="lane-name"><b>{res}</b> <span>{widths[res]}</span></div>
              <div class="lane-track">
                {own.map((w, i) => {
                  const until = res === 'raw' ? sealedUntil(w) : Math.min(Date.parse(w.end), newest);
                  // The oldest window may start before the first sample.
                  const left = at(i === 0 ? Math.max(Date.parse(w.start), until - sealedTime(w)) : Date.parse(w.start));
                  const width = at(until) - left;
                  return width > 0 && <span key={w.start} class={`block r-${res} ${w.unrolled ? 'unrolled' : ''} ${w.again && res === 'raw' ? 'again' : ''}`} style={{ left: `${left}%`, width: `${width}%` }} title={words(w)} />;
                })}
                {windows && newest < now && <span class="block open" style={{ left: `${at(newest)}%`, width: `${100 - at(newest)}%` }} title="Not sealed yet: in the staging log and in memory" />}
              </div>
            </div>
          );
        })}
        <div class="lane axis" aria-hidden="true">
          <div class="lane-name" />
          <div class="lane-axis">{[0, 0.5, 1].map((f) => <span key={f}>{f === 1 ? 'now' : days <= 7 ? utc(begin + f * (now - begin)).slice(5) : day(begin + f * (now - begin))}</span>)}</div>
        </div>
      </div>
      <ul class="keys">
        <li><i class="block r-raw" /> sealed</li>
        <li><i class="block r-raw again" /> sealed again because of late samples</li>
        <li><i class="block r-raw unrolled" /> missing rollups</li>
        <li><i class="block open" /> not sealed yet</li>
      </ul>
    </Panel>
  );
}

/** sealedUntil estimates the time until which a raw window is sealed. Slots are sealed in order, except late ones. */
function sealedUntil(w: Window): number {
  const start = Date.parse(w.start);
  const end = Date.parse(w.end);
  return end < Date.now() ? end : start + sealedTime(w);
}

/** sealedTime returns the total length of a window's sealed slots in milliseconds. */
function sealedTime(w: Window): number {
  return ((Date.parse(w.end) - Date.parse(w.start)) * w.slots) / w.of;
}

function words(w: Window): string {
  let text = `${utc(w.start)} – ${utc(w.end)} UTC: ${w.slots} of ${plural(w.of, 'slot')} sealed`;
  if (w.again) text += `, resealed ${plural(w.again, 'time')}`;
  if (w.imported) text += `, ${plural(w.imported, 'slot')} imported`;
  if (w.unrolled) text += `, missing rollups: ${count(w.unrolled)}`;
  return text;
}

function Partitions({ list }: { list: Partition[] }) {
  const bad = list.some((p) => p.failed_rounds > 0);
  return (
    <details class="panel" open={bad || list.some((p) => p.waiting_slots > 0)}>
      <summary><h2>Partitions</h2> <span class="small">{!list.length ? '' : list.every((p) => p.mine) ? `this process owns all ${list.length}` : `this process owns ${list.filter((p) => p.mine).length} of ${list.length}`}</span></summary>
      <Scroll label="Partitions">
        <table>
          <thead><tr><th>Partition</th>{list.some((p) => p.owner) && <th>Owner</th>}<th class="num">Waiting slots</th><th>Oldest waiting slot</th><th>Last sealed slot</th>{bad && <th>Failures</th>}</tr></thead>
          <tbody>
            {list.map((p) => (
              <tr key={p.partition}>
                <td>{p.partition}</td>
                {list.some((o) => o.owner) && <td>{p.owner ?? 'none'}</td>}
                <td class="num">{p.mine ? count(p.waiting_slots) : '–'}</td>
                <td>{p.oldest ? `${utc(p.oldest.start)}, due ${since(p.oldest.at)}` : '–'}</td>
                <td>{p.last_sealed ? `${utc(p.last_sealed.start)}, sealed ${since(p.last_sealed.at)}` : '–'}</td>
                {bad && <td>{p.failed_rounds ? `${plural(p.failed_rounds, 'failed run')}: ${p.last_error ?? ''} ${p.do ?? ''}` : ''}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </details>
  );
}
