// Cardinality: the composition of a window's series, and how many series were added and removed.
import { call } from './api';
import type { ViewProps } from './app';
import { count, plural, selector } from './format';
import { go, href } from './location';
import { Empty, Failure, Meter, missing, Notice, Panel, Scroll, Stat, useLoad, useReveal } from './parts';
import { day } from './time';

interface Churn {
  unsealed: number;
  cut: boolean;
  warnings: string[]; // of the response
  windows: { window: number; start: string; end: string; metrics: number; series: number; added: number; gone: number }[];
}

interface Count {
  name: string;
  count: number;
}

interface Made {
  series: number;
  all_metrics: number;
  all_labels: number;
  metrics: Count[];
  labels: Count[];
  values: Count[];
  warnings: string[]; // of the response
}

// A list first shows limit entries. The server returns at most most.
const limit = 50;
const most = 1000;

// open stands for the unsealed samples in place of a window's number.
const open = 'open';

export function Cardinality({ tenant, place }: ViewProps) {
  const asked = place.params;
  const metric = asked.get('metric') ?? '';
  const label = asked.get('label') ?? '';
  const all = asked.get('all') === '1';
  const showAll = () => change({ all: '1' });
  const change = (part: Record<string, string>) => {
    const params = new URLSearchParams(asked);
    for (const [k, v] of Object.entries(part)) v ? params.set(k, v) : params.delete(k);
    go('cardinality', params);
  };
  const churn = useLoad((signal) => call<Churn>('cassia/churn', {}, { tenant, signal }).then((a) => ({ ...a.data, warnings: a.warnings })), [tenant]);
  // Without a selection, the newest window is shown.
  const newest = churn.data?.windows.at(-1)?.window;
  const window = asked.get('window') ?? (churn.data ? (churn.data.unsealed || !newest ? open : String(newest)) : '');
  const sealed = window !== open;
  const made = useLoad(
    async (signal) => !window ? undefined : call<Made>('cassia/series', { window: sealed ? window : undefined, metric: metric || undefined, label: label || undefined, limit: all ? most : limit }, { tenant, signal }).then((a) => ({ ...a.data, warnings: a.warnings, label })),
    [tenant, window, metric, label, all],
  );
  const chosen = churn.data?.windows.find((w) => String(w.window) === window);
  const when = sealed ? (chosen ? `on ${day(chosen.start)}` : '') : 'in the head';
  const failed = { error: made.error ?? churn.error };
  const values = useReveal<HTMLElement>(label, made.data?.label === label);
  const nothing = churn.data && !churn.data.windows.length && !churn.data.unsealed;
  return (
    <>
      <div class="head-line">
        <h1>Cardinality</h1>
        <p>Number of series by metric, label and value, and their churn: series that appear and disappear over time.</p>
      </div>
      <div class="stats">
        <Stat name="Head series" value={churn.data ? count(churn.data.unsealed) : missing(churn)} note="recent series, in memory" />
        <Stat name="Latest window" value={churn.data ? count(churn.data.windows.at(-1)?.series ?? 0) : missing(churn)} note={!churn.data ? '' : churn.data.windows.length ? `series on ${day(churn.data.windows.at(-1)!.start)}` : 'no sealed data yet'} />
        <Stat name="Metrics" value={made.data ? count(made.data.all_metrics) : missing(failed)} note={`distinct ${made.data?.all_metrics === 1 ? 'name' : 'names'} ${when}`} />
        <Stat name="Labels" value={made.data ? count(made.data.all_labels) : missing(failed)} note={`distinct ${made.data?.all_labels === 1 ? 'name' : 'names'} ${when}`} />
      </div>
      {churn.error ? <Failure error={churn.error} again={churn.again} /> : null}
      {[...new Set([...(churn.data?.warnings ?? []), ...(made.data?.warnings ?? [])])].map((w) => <Notice key={w} tone="warning" title={w} />)}
      {nothing ? (
        <section class="panel"><Empty title="This tenant has no series">Send samples with remote write, or select another tenant above.</Empty></section>
      ) : churn.error && !churn.data ? null : (
        <>
          <Windows churn={churn.data} chosen={window} choose={(w) => change({ window: w, metric: '', label: '' })} />
          <div class="head-line">
            <h2>Series {when}</h2>
            {metric && <p>of metric <code>{metric}</code> <button class="link" onClick={() => change({ metric: '', label: '' })}>show all metrics</button></p>}
            {made.data && <p>{plural(made.data.series, 'series')}</p>}
          </div>
          {made.error ? <Failure error={made.error} again={made.again} /> : null}
          <div class="columns" aria-busy={made.loading}>
            <List
              title="Series per metric" more={all ? undefined : showAll} all={made.data?.all_metrics} list={made.data?.metrics} of={made.data?.series ?? 0}
              link={(name) => href('explore', query(tenant, { __name__: name }, chosen))}
              action={metric ? undefined : ['Labels', (name) => change({ metric: name, label: '' })]}
            />
            <List
              title="Values per label" more={all ? undefined : showAll} all={made.data?.all_labels} list={made.data?.labels} of={made.data?.labels[0]?.count ?? 0}
              action={['Values', (name) => change({ label: name })]} chosen={label}
            />
            {label && (
              <List
                at={values} title={<>Series per value of <code>{label}</code></>} more={all ? undefined : showAll} all={made.data?.labels.find((l) => l.name === label)?.count} list={made.data?.values} of={made.data?.series ?? 0}
                link={(value) => href('explore', query(tenant, metric ? { __name__: metric, [label]: value } : { [label]: value }, chosen))}
              />
            )}
          </div>
        </>
      )}
    </>
  );
}

/** query returns the parameters of Explore for a query of the matching series in a window. */
function query(tenant: string, labels: Record<string, string>, window?: { start: string; end: string }): Record<string, string> {
  const out: Record<string, string> = { q: `count(${selector(labels)})` };
  if (Object.keys(labels).length === 1 && labels['__name__']) out['q'] = selector(labels);
  if (tenant) out['tenant'] = tenant;
  if (window) {
    out['from'] = window.start;
    out['to'] = window.end;
  }
  return out;
}

function Windows(props: { churn: Churn | undefined; chosen: string; choose: (w: string) => void }) {
  const { churn } = props;
  const most = Math.max(1, ...(churn?.windows ?? []).map((w) => w.series), churn?.unsealed ?? 0);
  const signed = (n: number, sign: string) => (n < 0 ? '–' : n === 0 ? '0' : sign + count(n));
  return (
    <Panel title="Series and churn per window" aside="New and gone: compared with the previous window">
      {churn?.cut && <Notice tone="info" title="Older windows are omitted because there are too many series to compare." />}
      <Scroll label="Series and churn per window" class={`${churn ? '' : 'reserve'}`}>
        <table class="churn">
          <thead><tr><th>Window</th><th class="wide">Series</th><th class="num"><span class="hidden">Number</span></th><th class="num">New</th><th class="num">Gone</th></tr></thead>
          <tbody>
            <tr aria-selected={props.chosen === open}>
              <td><button class="link" onClick={() => props.choose(open)}>Head</button></td>
              <td class="wide"><Meter share={(churn?.unsealed ?? 0) / most} tone="soft" /></td>
              <td class="num">{churn ? count(churn.unsealed) : '…'}</td><td class="num">–</td><td class="num">–</td>
            </tr>
            {[...(churn?.windows ?? [])].reverse().map((w) => (
              <tr key={w.window} aria-selected={String(w.window) === props.chosen}>
                <td><button class="link" onClick={() => props.choose(String(w.window))}>{day(w.start)}</button></td>
                <td class="wide"><Meter share={w.series / most} /></td>
                <td class="num">{count(w.series)}</td>
                <td class="num">{signed(w.added, '+')}</td>
                <td class="num">{signed(w.gone, '−')}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}

function List(props: {
  title: preact.ComponentChildren; list: Count[] | undefined; all?: number | undefined; of: number;
  link?: (name: string) => string; action?: [string, (name: string) => void] | undefined; chosen?: string; more?: (() => void) | undefined; at?: preact.RefObject<HTMLElement> | undefined;
}) {
  const { list, all } = props;
  const cut = list && all && all > list.length;
  const aside = cut ? `top ${count(list.length)} of ${count(all)}` : undefined;
  return (
    <Panel title={props.title} aside={aside} at={props.at}>
      {list && !list.length && <p class="small">None</p>}
      <ul class="counts">
        {(list ?? []).map((c) => (
          <li key={c.name} class={props.chosen === c.name ? 'chosen' : ''}>
            <div class="count-line">
              {props.link ? <a href={props.link(c.name)} title="Explore">{c.name}</a> : <span class="count-name">{c.name}</span>}
              <span class="count-value">{count(c.count)}</span>
              {props.action && <button class="link" onClick={() => props.action![1](c.name)} aria-label={`${props.action[0]} of ${c.name}`}>{props.action[0]}</button>}
            </div>
            <Meter share={props.of ? c.count / props.of : 0} label={`${c.count} of ${props.of}`} />
          </li>
        ))}
      </ul>
      {cut && props.more && <button class="link" onClick={props.more}>{all > most ? `Show top ${count(most)}` : `Show all ${count(all)}`}</button>}
    </Panel>
  );
}
