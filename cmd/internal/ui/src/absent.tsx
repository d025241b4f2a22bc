// Explains why a query returned nothing: names that aren't metrics, with similar names, and when other metrics had
// their last samples.
import type { ComponentChildren } from 'preact';
import { call } from './api';
import { href } from './location';
import { Empty, Notice, useLoad } from './parts';
import { day, local } from './time';
import { metricsOf, type Tree } from './unit';

/** Known is the response of api/v1/cassia/metric: what the server stores of a metric. */
interface Known {
  name: string;
  found: boolean;
  /** rollup_of is the metric if name is the name of its rollup. */
  rollup_of?: string;
  /**
   * recent is set if the metric has samples of the last hour. first and last are the time range of its raw samples or,
   * for a rollup, of its sealed samples.
   */
  recent: boolean;
  first?: string;
  last?: string;
  similar: string[];
}

// Only the first metrics of a query are checked.
const most = 5;

interface Props {
  query: string;
  letter: string;
  tenant: string;
  /** title and children are shown if all metrics of the query exist. */
  title: string;
  children: ComponentChildren;
  /** replace is called with the query in which a name was replaced by a similar one, and with that name. */
  replace: (query: string, name: string) => void;
  /** beside is set if other queries returned series, so that one line is enough. */
  beside?: boolean;
}

export function Absent(props: Props) {
  const { query, tenant } = props;
  const known = useLoad(async (signal) => {
    const tree = await call<Tree>('parse_query', { query }, { tenant, signal, post: true }).then((a) => a.data, () => null);
    const names = tree ? metricsOf(tree).slice(0, most) : [];
    return Promise.all(names.map((name) => call<Known>('cassia/metric', { name }, { tenant, signal }).then((a) => a.data)));
  }, [tenant, query]);
  const before = props.letter && props.letter + ': ';
  const unknown = (known.data ?? []).filter((m) => !m.found);
  const title = unknown.length ? before + (unknown.length > 1 ? `No metrics are named ${unknown.map((m) => `“${m.name}”`).join(' or ')}` : `No metric is named “${unknown[0]!.name}”`) : before + props.title;
  const text = known.loading && !known.data ? null : (
    <>
      {unknown.map((m) => m.similar.length > 0 && (
        <p key={m.name}>
          Did you mean {m.similar.map((s, i) => <>{i > 0 && (i === m.similar.length - 1 ? ' or ' : ', ')}<button type="button" class="link mono" onClick={() => props.replace(renamed(query, m.name, s), s)}>{s}</button></>)}?
        </p>
      ))}
      {unknown.some((m) => !m.similar.length) && <p>Search all metrics under <a href={href('metrics', tenant ? { tenant } : {})}>Metrics</a>, or select another tenant.</p>}
      {(known.data ?? []).filter((m) => m.rollup_of && !m.last).map((m) => (
        <p key={m.name}><code>{m.name}</code> is a rollup of <code>{m.rollup_of}</code>, which has no sealed samples yet.</p>
      ))}
      {(known.data ?? []).filter((m) => m.found && m.last && !m.recent).map((m) => (
        <p key={m.name}>
          <code>{m.name}</code> {m.rollup_of ? <>is a rollup of the sealed samples of <code>{m.rollup_of}</code>. It has no values after {moment(m.last!)}.</> : <>has no samples after {moment(m.last!)}.</>} <a href={href('explore', { ...(tenant ? { tenant } : {}), q: query, from: lastDay(m.last!), to: m.last! })}>Show its last day</a>
        </p>
      ))}
      {!unknown.length && props.children}
    </>
  );
  if (props.beside) return <Notice tone="info" title={title}>{text}</Notice>;
  return <Empty title={title}>{text}</Empty>;
}

const moment = (at: string) => (at.endsWith('T00:00:00Z') ? day(Date.parse(at)) : local(Date.parse(at) / 1000).slice(0, 16));

const lastDay = (at: string) => new Date(Date.parse(at) - 86400_000).toISOString().slice(0, 19) + 'Z';

/** renamed replaces the name of a metric in a query, only where it is a complete name. */
export function renamed(query: string, name: string, other: string): string {
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return query.replace(new RegExp(`(^|[^\\w:])${escaped}(?![\\w:])`, 'g'), (_, left: string) => left + other);
}
