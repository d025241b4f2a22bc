// Storage: the disk usage of a tenant's data, the windows that expire next, backups (for users who may see metrics),
// and the state of the engine (for admins).
import { call } from './api';
import type { ViewProps } from './app';
import { Backups } from './backups';
import { bytes, plural } from './format';
import { href } from './location';
import { Empty, Failures, Meter, missing, Notice, Panel, Scroll, Stat, type Tone, useLoad } from './parts';
import { day, lasting, since } from './time';
import { resolutions, useWindows, widths, type Kept, type Window } from './windows';

interface Health {
  engine: string;
  memory: { used: number; max: number };
  disk: { path: string; bytes: number; free: number; total: number } | null;
  space: Record<string, number> | null;
  findings: { level: 'ok' | 'note' | 'warning' | 'error'; what: string; why?: string; do?: string }[];
  examined: string;
}

export function Storage({ session, tenant }: ViewProps) {
  const windows = useWindows(tenant);
  const health = useLoad(
    (signal) => (session.admin ? call<Health>('cassia/health', {}, { signal }).then((a) => a.data) : Promise.resolve(undefined)),
    [session.admin], 60_000,
  );
  // Ignore windows without sealed slots. They contain only names of series, and this view is about sealed data.
  const all = (windows.data?.windows ?? []).filter((w) => w.resolution !== 'raw' || w.slots > 0);
  const known = all.every((w) => w.bytes >= 0);
  const sum = (res?: string) => all.filter((w) => !res || w.resolution === res).reduce((n, w) => n + Math.max(0, w.bytes), 0);
  const h = health.data;
  const local = session.admin && session.engine === 'pebble';
  return (
    <>
      <div class="head-line">
        <h1>Storage</h1>
        <p>Sealed data of tenant <b>{tenant}</b>, and when it expires.</p>
      </div>
      <div class="stats">
        <Stat name="Sealed" value={!windows.data ? missing(windows) : known ? bytes(sum()) : '–'} note={windows.data && plural(all.length, 'window')} />
        {resolutions.map((res) => (
          <Stat key={res} name={res} value={!windows.data ? missing(windows) : known ? bytes(sum(res)) : '–'} note={widths[res]} />
        ))}
        {local && <Stat name="Data directory" value={h?.disk ? bytes(h.disk.bytes) : missing(health)} note="all tenants, including the WAL" />}
        {local && <Stat name="Free disk space" value={h?.disk?.total ? bytes(h.disk.free) : h ? '–' : missing(health)} note={h?.disk?.total ? `of ${bytes(h.disk.total)}` : ''} bad={!!h?.disk && h.disk.free < h.disk.total / 20} />}
        {session.admin && <Stat name="Memory" value={h ? bytes(h.memory.used) : missing(health)} note={h && <span title="--memory.max-bytes">of {bytes(h.memory.max)}</span>} bad={!!h && h.memory.used > h.memory.max * 0.8} />}
      </div>
      <Failures of={[windows, health]} />
      {!known && <p class="small">With Cassandra, the size of a window is unknown. To see table sizes, run <code>nodetool tablestats</code> on the nodes.</p>}
      {windows.data && !all.length ? (
        <section class="panel"><Empty title="No sealed data yet">The latest samples are in the staging log and in memory. <a href={href('downsampling', tenant ? { tenant } : {})}>Downsampling</a> shows when they are sealed.</Empty></section>
      ) : windows.error && !windows.data ? null : (
        <div class="columns thirds">
          {resolutions.map((res) => (
            <Resolution key={res} res={res} list={all.filter((w) => w.resolution === res)} kept={windows.data?.kept} longest={windows.data?.longest} />
          ))}
        </div>
      )}
      {(all.length > 0 || (!windows.data && !windows.error)) && <Next list={windows.data && all} />}
      {session.metrics && <Backups session={session} />}
      {h && <Findings health={h} />}
      {h?.space && <Space space={h.space} />}
    </>
  );
}

function Resolution(props: { res: 'raw' | '5m' | '1h'; list: Window[]; kept: Kept | undefined; longest: Kept | undefined }) {
  const { res, list, kept, longest } = props;
  const shown = list.slice(-60);
  const most = Math.max(1, ...shown.map((w) => w.bytes));
  const sized = shown.some((w) => w.bytes > 0);
  return (
    <Panel title={<><span class={`res-chip r-${res}`}>{res}</span></>} aside={kept && <span>Retention: {lasting(kept[res])}{longest && longest[res] !== kept[res] && `; longest class: ${lasting(longest[res])}`}</span>}>
      <div class="windows" style={{ maxWidth: `${Math.max(1, shown.length) * 2.65}rem` }}>
        <div class={`bars r-${res}`} role="img" aria-label={`Size per window, ${plural(list.length, 'window')}`}>
          {shown.map((w) => (
            <i key={w.start} style={{ height: sized ? `${Math.max(3, (100 * w.bytes) / most)}%` : '40%' }} title={`${day(w.start)} – ${day(w.end)}: ${w.bytes < 0 ? 'unknown size' : bytes(w.bytes)}`} />
          ))}
        </div>
        <div class="bars-axis"><span>{shown[0] ? day(shown[0].start) : 'no windows'}</span><span>{shown.length > 1 ? day(shown.at(-1)!.end) : ''}</span></div>
      </div>
      <p class="small">{plural(list.length, 'window')}{list.length > shown.length && `, the latest ${shown.length} are shown`}{sized ? `; largest: ${bytes(most)}` : list.length ? '; sizes are unknown until the data is flushed' : ''}</p>
    </Panel>
  );
}

function Next({ list }: { list: Window[] | undefined }) {
  const going = (list ?? []).filter((w) => w.hidden).sort((a, b) => a.hidden!.localeCompare(b.hidden!)).slice(0, 8);
  return (
    <Panel title="Next to expire" aside="Queries don’t return expired data; its disk space is freed 7 days later">
      {going.length ? (
        <Scroll label="Windows next to expire">
          <table>
            <thead><tr><th>Resolution</th><th>Window</th><th class="num">Size</th><th>Expires</th><th>Space freed</th></tr></thead>
            <tbody>
              {going.map((w) => (
                <tr key={w.resolution + w.start}>
                  <td><span class={`res-chip r-${w.resolution}`}>{w.resolution}</span></td>
                  <td class="nowrap">{day(w.start)} – {day(w.end)}</td>
                  <td class="num">{w.bytes < 0 ? '–' : bytes(w.bytes)}</td>
                  <td class="nowrap">{Date.parse(w.hidden!) > Date.now() ? `${day(w.hidden!)}, ${since(w.hidden!)}` : `expired ${day(w.hidden!)}`}</td>
                  <td class="nowrap">{w.goes ? day(w.goes) : '–'}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <p class={`small ${list ? '' : 'reserve'}`}>{list ? 'No data expires: retention is unlimited.' : '\u00a0'}</p>
      )}
    </Panel>
  );
}

const tones: Record<string, Tone> = { ok: 'ok', note: 'info', warning: 'warning', error: 'error' };

function Findings({ health }: { health: Health }) {
  const bad = health.findings.filter((f) => f.level === 'error' || f.level === 'warning').length;
  return (
    <Panel title="Health checks" aside={<>{bad ? plural(bad, 'problem') : 'no problems'} · checked {since(health.examined)}</>}>
      {health.findings.map((f, i) => (
        <Notice key={i} tone={tones[f.level] ?? 'info'} title={<Coded text={f.what} />}>
          {f.why && <p><Coded text={f.why} /></p>}
          {f.do && <div class="do"><pre>{f.do}</pre></div>}
        </Notice>
      ))}
    </Panel>
  );
}

/** Coded shows text in backticks as code. */
function Coded({ text }: { text: string }) {
  return <>{text.split('`').map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}

const meanings: Record<string, string> = {
  stage: 'staging log: samples not sealed yet', raw: 'sealed samples', r5m: '5-minute buckets', r1h: '1-hour buckets', catalog: 'index of metric names, label names and values',
  metadata: 'type, unit and help of metrics', sealed: 'commit records of sealed slots', defined: 'labels of series not sealed yet', held: 'samples from standby HA replicas',
  raw_pages: 'sealed samples of many series', r5m_pages: '5-minute buckets of many series', r1h_pages: '1-hour buckets of many series', store: 'settings', tenants: 'list of tenants',
  windows: 'list of windows', processes: 'list of processes', shards: 'number of shards per metric', delete: 'deletes', lease: 'locks between processes', low: 'start of the unsealed data',
  tails: 'stream positions of processes', chosen: 'elected HA replicas', pending: 'list of old slots with unsealed samples', log: 'write-ahead log (WAL)', free: 'deleted data, freed by compaction', other: 'other files',
};

function Space({ space }: { space: Record<string, number> }) {
  const list = Object.entries(space).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  const all = list.reduce((n, [, b]) => n + b, 0);
  return (
    <Panel title="Disk usage by table" aside={`${bytes(all)} in total, all tenants`}>
      <ul class="counts">
        {list.map(([name, n]) => (
          <li key={name}>
            <div class="count-line"><code class="count-name">{name}</code><span class="small grow">{meanings[name] ?? ''}</span><span class="count-value">{bytes(n)}</span></div>
            <Meter share={n / Math.max(1, all)} label={`${bytes(n)} of ${bytes(all)}`} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}
