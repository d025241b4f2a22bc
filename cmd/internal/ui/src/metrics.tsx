// Metrics: the names, their metadata and newest values, and a suitable query for each.
import { useMemo, useState } from 'preact/hooks';
import { Absent } from './absent';
import { call } from './api';
import type { ViewProps } from './app';
import { count, exact, number, observations, plural, selector } from './format';
import { go, href } from './location';
import { matching, meaningOf, suiting, type Metadata } from './meaning';
import { Empty, Failure, Panel, Scroll, useLoad, useReveal } from './parts';
import type { Series } from './results';
import { local } from './time';

// The max numbers of requested names, of displayed names, and of displayed values of a metric.
const most = 20_000;
const drawn = 200;
const values = 20;

export function Metrics({ tenant, place }: ViewProps) {
  const [text, setText] = useState(place.params.get('find') ?? '');
  const list = useLoad(async (signal) => {
    const now = Math.floor(Date.now() / 1000);
    const [names, meanings] = await Promise.all([
      call<string[]>('label/__name__/values', { start: now - 86400, end: now, limit: most }, { tenant, signal }),
      call<Metadata>('metadata', { limit: most }, { tenant, signal }),
    ]);
    return { names: names.data, meanings: meanings.data };
  }, [tenant]);
  const names = list.data?.names ?? [];
  const meanings = list.data?.meanings ?? {};
  const found = useMemo(() => matching(names, meanings, text), [list.data, text]);
  const chosen = place.params.get('metric') ?? '';
  const at = useReveal<HTMLElement>(chosen);
  const choose = (metric: string) => {
    const params = new URLSearchParams(place.params);
    params.set('metric', metric);
    go('metrics', params);
  };
  return (
    <>
      <div class="head-line">
        <h1>Metrics</h1>
        <p>Metrics of tenant <b>{tenant}</b> from the last day, with their type, unit and help text.</p>
        <input class="find" placeholder="Search names and help texts" aria-label="Search metrics" value={text} onInput={(e) => setText(e.currentTarget.value)} />
      </div>
      {list.error ? <Failure error={list.error} again={list.again} /> : null}
      {list.data && !names.length ? (
        <section class="panel"><Empty title="This tenant has no metrics from the last day">Send samples with remote write, or select another tenant above.</Empty></section>
      ) : (
        <div class="columns">
          <Panel title={list.data ? plural(found.length, 'metric') : 'Metrics'} aside={found.length > drawn ? `only the first ${drawn} are listed; search to find others` : names.length >= most ? `only the first ${count(most)} by name` : undefined}>
            <ul class={`metric-list ${list.data ? '' : 'reserve'}`}>
              {found.slice(0, drawn).map((name) => {
                const m = meaningOf(name, meanings);
                return (
                  <li key={name}>
                    <button aria-pressed={name === chosen} onClick={() => choose(name)}>
                      <code>{name}</code> <span class="small">{[m.type, m.unit, m.help].filter(Boolean).join(' · ')}</span>
                    </button>
                  </li>
                );
              })}
              {list.data && !found.length && <li class="small">No matching metric.</li>}
            </ul>
          </Panel>
          {/* Not before the list: below it, on a small screen, it would be moved. */}
          {chosen ? list.data && <Metric key={chosen} at={at} choose={choose} name={chosen} meanings={meanings} tenant={tenant} /> : <Panel><Empty title="Select a metric">Its type, latest values and a suggested query are shown here.</Empty></Panel>}
        </div>
      )}
    </>
  );
}

function Metric({ name, meanings, tenant, at, choose }: { name: string; meanings: Metadata; tenant: string; at: preact.RefObject<HTMLElement>; choose: (name: string) => void }) {
  const m = meaningOf(name, meanings);
  const query = suiting(name, m.type);
  const plain = selector({ __name__: name });
  const keep: Record<string, string> = tenant ? { tenant } : {};
  const newest = useLoad(
    (signal) => call<{ result: Series[] }>('query', { query: plain, limit: values + 1 }, { tenant, signal, post: true }).then((a) => a.data.result),
    [tenant, name], 15_000,
  );
  const list = newest.data ?? [];
  return (
    <Panel at={at} title={<code>{name}</code>} aside={<><a href={href('explore', { ...keep, q: query })}>Explore{query !== plain && <> <code>{query}</code></>}</a>{query !== plain && <a href={href('explore', { ...keep, q: plain })}>Explore stored values</a>}</>}>
      <dl class="facts">
        <div><dt>Type</dt><dd>{m.type || 'unknown'}</dd></div>
        <div><dt>Unit</dt><dd>{m.unit || 'unknown'}</dd></div>
      </dl>
      <p class="metric-help">{m.help || 'No help text was received for this metric.'}</p>
      {newest.error ? <Failure error={newest.error} again={newest.again} /> : null}
      {newest.data && !list.length && <Absent query={plain} letter="" tenant={tenant} title="No samples in the last 5 minutes" beside replace={(_, similar) => choose(similar)}>{null}</Absent>}
      {list.length > 0 && (
        <Scroll label={`Latest values of ${name}`}>
          <table>
            <caption>Latest values{list.length > values ? ` of the first ${values} series` : ''} at {local(list[0]!.value?.[0] ?? list[0]!.histogram?.[0] ?? 0)}</caption>
            <tbody>
              {list.slice(0, values).map((s, i) => {
                const { __name__: _, ...labels } = s.metric;
                return <tr key={i}><td class="mono">{selector(labels)}</td><td class="num">{s.value ? exact(number(s.value[1])) : observations(s.histogram![1].count)}</td></tr>;
              })}
            </tbody>
          </table>
        </Scroll>
      )}
    </Panel>
  );
}
