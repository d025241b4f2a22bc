// The tab Graph: lines or a heat map, with their options.
import { useRef } from 'preact/hooks';
import { call } from './api';
import { letter, type Asked } from './asked';
import { ExemplarList, thinned, type Exemplar, type Exemplars } from './exemplars';
import { aligned, Graph, type Line } from './graph';
import { heatOf } from './heat';
import { Heatmap } from './heatmap';
import { useHeld } from './held';
import { meaningOf, type Metadata } from './meaning';
import { Failure, Notice, useLoad } from './parts';
import { Absent } from './absent';
import type { Result, Series } from './results';
import { duration, type Bounds } from './time';
import { metricsOf, nameOf, unitOf, unitOfMetric, type Tree, type Unit } from './unit';

// A limit for the browser, and for the number of lines that people can distinguish.
export const maxLines = 100;

interface Props {
  results: Result[];
  now: Asked;
  tenant: string;
  change: (part: Partial<Asked>) => void;
}

export function Lines({ results: newest, now, tenant, change }: Props) {
  const [results, hold] = useHeld(newest);
  const done = results.filter((r) => r.answer && r.bounds && r.answer.data.resultType === 'matrix');
  const drawn = done[0]?.bounds;
  const key = [...done.map((r) => r.answer), now.right.join()];
  const all = useKept(key, () => (drawn ? done.flatMap((r) => linesOf(r, results.indexOf(r), drawn, now.right)) : []));
  const lines = useKept([all], () => all.slice(0, maxLines));
  const heat = useKept(key, () => (drawn ? heatOf(done.map(seriesOf), drawn) : null));
  const units = useUnits(done, tenant);
  const exemplars = useExemplars(now.exemplars && !!drawn, done, drawn, tenant);
  const native = done.some((r) => seriesOf(r).some((s) => s.histograms?.length));
  const observed = done.some((r) => seriesOf(r).some((s) => s.histograms?.some(([, h]) => h.buckets?.length)));
  const absent = (r: Result, beside = false) => {
    const i = results.indexOf(r);
    return (
      <Absent query={r.query} letter={results.length > 1 ? letter(i) : ''} tenant={tenant} title="No samples in this range" beside={beside} replace={(query) => change({ queries: now.queries.map((q, k) => (k === i ? query : q)) })}>
        <p>Try a longer range or fewer label matchers. Metrics and Cardinality show which series are stored.</p>
      </Absent>
    );
  };
  if (!drawn || (!lines.length && !heat && !native)) {
    if (!done.length) return !results.length || results.some((r) => r.loading) ? <div class="plot-space" /> : null;
    return <>{done.map((r) => <div key={r.query}>{absent(r)}</div>)}</>;
  }
  const asHeat = heat !== null && (native || !now.lines);
  const iso = (t: number) => new Date(t * 1000).toISOString().slice(0, 19) + 'Z';
  const width = drawn.end - drawn.start || drawn.step;
  const show = (from: number, to: number) => change({ range: { from: iso(from), to: iso(Math.min(to, Date.now() / 1000)) } });
  const of = (right: boolean) => done.filter((r) => now.right.includes(results.indexOf(r)) === right).map((r) => r.query);
  const axes: [Unit | undefined, Unit | undefined] = [common(of(false), units.values), common(of(true), units.values)];
  const names = axes.map(nameOf);
  const marked = exemplars.data ?? noExemplars;
  return (
    <>
      {done.filter((r) => !seriesOf(r).length).map((r) => <div key={r.query}>{absent(r, true)}</div>)}
      {native && !observed && <Notice tone="info" title="The histograms are empty.">No observations were made in this range.</Notice>}
      {observed && !heat && <Notice tone="info" title="Native histograms are not shown.">A heatmap shows one histogram at a time. Hide the other queries, or select a single metric.</Notice>}
      <div class="table-tools">
        {heat && !native && <button aria-pressed={!now.lines} onClick={() => change({ lines: !now.lines })}>Heatmap</button>}
        {!asHeat && <button aria-pressed={now.stack} onClick={() => change({ stack: !now.stack })}>Stacked</button>}
        {!asHeat && <button aria-pressed={now.log} onClick={() => change({ log: !now.log })}>Log scale</button>}
        {!asHeat && <button aria-pressed={now.exemplars} onClick={() => change({ exemplars: !now.exemplars })}>Exemplars</button>}
        <button onClick={() => show(drawn.start - width / 2, drawn.end + width / 2)}>Zoom out</button>
        <span class="small">
          Step: {duration(drawn.step)}{now.step ? '' : ' (auto)'}
          {!asHeat && names[0] && ` · ${of(true).length ? 'Left axis' : 'Unit'}: ${names[0]}`}{!asHeat && names[1] && ` · Right axis: ${names[1]}`}
        </span>
      </div>
      {asHeat ? (
        <>
          <Heatmap heat={heat} bounds={drawn} unit={units.observed} onZoom={show} onDown={hold} />
          {done.some((r) => /^[\w:]+(\{.*\})?$/.test(r.query.trim())) && <p class="small">The buckets count all observations since each process started. To see when observations were made, use a query such as <code>rate(…[5m])</code>.</p>}
        </>
      ) : !lines.length ? null : (
        <Graph lines={lines} bounds={drawn} letters={results.length > 1} stack={now.stack} log={now.log} units={axes} exemplars={now.exemplars ? marked : noExemplars} onZoom={show} onDown={hold} />
      )}
      {!asHeat && now.exemplars && (exemplars.error ? <Failure error={exemplars.error} again={exemplars.again} /> : exemplars.data && <ExemplarList all={marked} />)}
    </>
  );
}

const noExemplars: Exemplar[] = [];

/** useKept returns a cached value, and recreates it when an element of the key changes. */
function useKept<T>(key: unknown[], make: () => T): T {
  const last = useRef<{ key: unknown[]; value: T }>();
  if (!last.current || key.length !== last.current.key.length || key.some((k, i) => k !== last.current!.key[i])) last.current = { key, value: make() };
  return last.current.value;
}

function seriesOf(r: Result): Series[] {
  const data = r.answer!.data;
  return data.resultType === 'matrix' ? data.result : [];
}

function linesOf(r: Result, i: number, b: Bounds, right: number[]): Line[] {
  return seriesOf(r).filter((s) => s.values?.length).map((s) => ({ labels: s.metric, of: letter(i), values: aligned(s.values!, b), right: right.includes(i) }));
}

/** common returns the unit that all queries of an axis have in common, if there is one. */
function common(queries: string[], units: Map<string, Unit | undefined>): Unit | undefined {
  const all = queries.map((q) => units.get(q));
  return all.every((u) => nameOf(u) === nameOf(all[0])) ? all[0] : undefined;
}

interface Units {
  values: Map<string, Unit | undefined>;
  /** observed is the unit of the observations in histograms. */
  observed?: Unit;
}

const noUnits: Units = { values: new Map() };

/**
 * useUnits loads the units of queries from the server, which parses the queries and has the metadata. Until it has
 * loaded them, axes have plain numbers.
 */
function useUnits(done: Result[], tenant: string): Units {
  const queries = done.map((r) => r.query);
  const found = useLoad(async (signal) => {
    const options = { tenant, signal, post: true };
    const trees = await Promise.all(queries.map((query) => call<Tree>('parse_query', { query }, options).then((a) => a.data, () => null)));
    const metrics = [...new Set(trees.flatMap((t) => (t ? metricsOf(t) : [])))].slice(0, 20);
    const families = [...new Set(metrics.flatMap((m) => [m, m.replace(/_(bucket|sum|count|total)$/, '')]))];
    const told: Metadata = Object.assign({}, ...(await Promise.all(
      families.map((metric) => call<Metadata>('metadata', { metric }, { tenant, signal }).then((a) => a.data, () => ({}))),
    )));
    const of = (metric: string) => unitOfMetric(metric, meaningOf(metric, told).unit);
    const observed = [...new Set(metrics.map((m) => m.replace(/_bucket$/, '')))];
    return { values: new Map(trees.map((t, i) => [queries[i]!, unitOf(t, of)])), ...(observed.length === 1 && { observed: of(observed[0]!) }) } as Units;
  }, [tenant, queries]);
  return found.data ?? noUnits;
}

/** useExemplars loads the exemplars of the series that the queries read. */
function useExemplars(on: boolean, done: Result[], b: Bounds | undefined, tenant: string) {
  const queries = done.map((r) => r.query);
  const loaded = useLoad(async (signal) => {
    if (!on || !b) return noExemplars;
    const lists = await Promise.all(queries.map((query) => call<Exemplars[]>('query_exemplars', { query, start: b.start, end: b.end }, { tenant, signal, post: true })));
    return thinned(lists.flatMap((l) => l.data));
  }, [on, queries, b, tenant]);
  return loaded;
}
